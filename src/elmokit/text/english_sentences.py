"""Where English sentences end."""

import re
from collections.abc import Iterator

from elmokit.text.abbreviations import ABBREVIATIONS

_CANDIDATE = re.compile(r"""(?<=[.!?…])[\])}"'”’»]*+\s++|[^\S\n]*+\n\s*+\n\s*+""")


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence, without the spaces around it."""
    start = len(text) - len(text.lstrip())
    final = len(text.rstrip())
    for match in _CANDIDATE.finditer(text, start):
        if match.end() >= final:
            break
        gap = match.group()
        if "\n" in gap and gap.count("\n") > 1 or _ends(text, match.start(), match.end(), gap):
            yield start, match.start() + len(gap.rstrip())
            start = match.end()
    if start < final:
        yield start, final


_ABBREVIATION = re.compile(f"(?:^|[^\\w])(?:{ABBREVIATIONS}|[A-Za-z]|(?:[A-Za-z]\\.)+[A-Za-z])\\.$")


def _ends(text: str, stop: int, following: int, gap: str) -> bool:
    if text[following].islower():
        return False
    return not _ABBREVIATION.search(text[max(0, stop - 12) : stop])
