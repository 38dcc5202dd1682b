"""Undo what the Penn Treebank's files do to brackets, quotes and slashes."""

_ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


def unescape_treebank(token: str) -> str:
    """The token as it stood in the text: -LRB- is (, both `` and '' are ", 1\\/2 is 1/2 and \\* is *."""
    if token in _ESCAPED:
        return _ESCAPED[token]
    return token.replace("\\/", "/").replace("\\*", "*") if "\\" in token else token
