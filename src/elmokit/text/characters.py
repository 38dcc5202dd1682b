"""Classes of characters that Python's regular expressions have no name for, as the inside of a [...]."""

import unicodedata
from collections.abc import Callable
from functools import cache


@cache
def marks() -> str:
    """Combining marks, and the soft hyphen and joiners: they belong to the character before them."""
    return _class(lambda code: unicodedata.category(chr(code))[0] == "M" or code in (0xAD, 0x200C, 0x200D))


@cache
def emoji() -> str:
    """An expression for one emoji as it is seen: a flag, or a picture with its modifiers and what is joined to it."""
    picture = "[\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    modified = f"{picture}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    return f"[\U0001f1e6-\U0001f1ff]{{2}}|{modified}(?:\u200d{modified})*+"


def _class(belongs: Callable[[int], bool]) -> str:
    """Ranges of the code points that belong; marks stand in the first two planes and among the variation selectors."""
    ranges: list[list[int]] = []
    for code in (*range(0x20000), *range(0xE0100, 0xE01F0)):
        if not belongs(code):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)
