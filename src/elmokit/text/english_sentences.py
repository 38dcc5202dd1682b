"""Where English sentences end.

A blank line always ends a sentence. A single line break is a space, so that wrapped prose stays whole, but it ends a
sentence before a list item (-, *, 3., b)) and after a heading: a line of its own of at most 50 characters that does not
end in a mark and is followed by a capital, a digit or a quotation.

Otherwise a sentence ends at . ? ! or an ellipsis, with the quotes, brackets and emoticon that close it, before a space:
- not before a small letter, unless the stop follows a word that is no abbreviation, or the mark is ? or a run of marks
  outside quotes ("Why?" he said; Oh! the pain);
- not after titles, initials and abbreviations that something follows (Mr., J., vs., No. 5), and after those that may
  end a sentence (Inc., U.S., p.m.) only before a word that likes to begin one (The, He, But);
- not after the number or letter of a list item, nor where nothing but marks stood before.
"""

import re
from collections.abc import Iterator

from elmokit.text.abbreviations import BEFORE_NUMBER, CLOSING, DAYS, INNER, MONTHS, SHORT, STARTERS, TITLES

# The look-behind keeps it linear: a run of marks is entered at its first mark only.
_CANDIDATE = re.compile(
    r"(?<![.!?…])(?<![.!?…]\s)(?P<stop>[.!?…]++(?:\s[.!?…]++)*+)"
    r"(?P<close>[\])}\"'”’»]*+(?:\s*+[:;=][-'’o]?[)(DP](?!\w)|\s*+\^_\^)?+)"
    r"\s++"
    r"|\n\s*+"
)
_NEXT = re.compile(r"[\"'“‘«(\[{*_]*+(?P<word>\w*+)")
_LAST = re.compile(r"[^\s\"“”‘«(\[{*_—–-]*$")
_LIST_ITEM = re.compile(r"(?:[-*•–]|\(?(?:\d{1,3}|[A-Za-z])[.)])\s")
_LIST_NUMBER = re.compile(r"[(*]?(?:\d{1,3}|[ivxIVX]{1,5}|(?:[A-Za-z]\.)*[A-Za-z])")  # or P.S., i.e.
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_HEADING_LENGTH = 50

_NEVER = frozenset(f"{TITLES} {INNER}".split())
_SOMETIMES = frozenset(f"{CLOSING} {MONTHS}".split())
_NUMBERED = frozenset(f"{BEFORE_NUMBER} {DAYS}".split())
_MONTHS = frozenset(MONTHS.split())
_STARTERS = frozenset(STARTERS.split())
_SHORT = frozenset(SHORT.split())


def sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence, without the spaces around it."""
    start = len(text) - len(text.lstrip())
    final = len(text.rstrip())
    for match in _CANDIDATE.finditer(text, start, final):
        gap, following = match.end("close"), match.end()
        if gap < 0:  # a line break with no stop before it
            gap = match.start()
            ends = _line_ends(text, start, gap, following)
        else:
            ends = text.count("\n", gap, following) > 1 or _stop_ends(text, start, match)
        if ends:
            yield start, gap if match["stop"] else start + len(text[start:gap].rstrip())
            start = following
    if start < final:
        yield start, final


def _line_ends(text: str, start: int, gap: int, following: int) -> bool:
    """Does the sentence end at this line break, which no stop precedes?"""
    if text.count("\n", gap, following) > 1 or _LIST_ITEM.match(text, following):
        return True
    line = text[start:gap].rstrip() if gap - start <= 2 * _HEADING_LENGTH else ""
    of_its_own = not text[text.rfind("\n", 0, start) + 1 : start].strip() and "\n" not in line
    first = text[following]
    return (
        of_its_own
        and 0 < len(line) <= _HEADING_LENGTH
        and (line[-1].isalnum() or line[-1] in ")]\"'”’")
        and (first.isupper() or first.isdigit() or first in "\"'“‘")
    )


def _stop_ends(text: str, start: int, match: re.Match[str]) -> bool:
    """Does the sentence end at this stop?"""
    stop, close = match["stop"], match["close"]
    at = match.start()
    if at == start or _LIST_NUMBER.fullmatch(text, start, at):
        return False
    following = match.end()
    if text[following] in ".,;:?!)]}":
        return False
    found = _NEXT.match(text, following)
    word = found["word"] if found else ""
    small = word[:1].islower()
    if stop != ".":
        if "?" in stop or "!" in stop:
            return not small or (not close and stop != "!")
        return not small and not word[:1].isdigit()
    before = _LAST.search(text, max(start, at - 24), at)
    return _full_stop_ends(before.group().lstrip("'’") if before else "", word, small=small)


def _full_stop_ends(before: str, after: str, *, small: bool) -> bool:
    """Does the sentence end at the stop between these two words?"""
    if before in _NEVER:
        return False
    if before in _NUMBERED and (after[:1].isdigit() or after in _MONTHS):
        return False
    if small:
        return before in _SHORT or (
            len(before) >= 4 and before not in _SOMETIMES and before.isalpha() and before.islower()
        )
    if before == "etc" or before == "I":
        return True
    if before in _SOMETIMES or (before and _ACRONYM.fullmatch(before)):
        return after in _STARTERS
    return True
