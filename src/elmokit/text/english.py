"""English: tokens in the manner of the Penn Treebank as the English Web Treebank (UD EWT) applies it, and sentences.

Nothing is normalised: every token is a slice of the text, and together the tokens hold every character but spaces.

- Contractions and possessives are split: do n't, can not, I 'm, dog 's, dogs ', gon na, 't was; so are the ones
  written without an apostrophe that can be nothing else (did nt, they re).
- Hyphens: a compound is split and the hyphen is a token of its own (well - known, 15 - year - old, Jean - Paul), but a
  prefix that is hardly a word by itself stays on (non-stop, e-mail, co-founder, mid-July), and telephone numbers and
  dates are left whole (713-853-3989, 2001-09-11). Dashes are tokens of their own everywhere. This is the treebank's own
  practice; leaving compounds whole costs 0.6 points of token F1 on EWT dev.
- A word with an inner apostrophe is one token (o'clock, O'Neill, Shi'ite), as are numbers with separators (1,200.50,
  7:30, 9/11), ordinals and decades (20th, 1960s, '60s), initials and abbreviations with their stop (W., Mr., U.S.), web
  and mail addresses, file names, emoticons, emoji with their modifiers, and runs of one mark (..., --, !!, ***).
- A stop that ends the sentence is a token of its own even after an abbreviation: at 5 p.m .
- Currency signs, per cent signs and units stand alone: US$ 20 m, 5 %, 7:30 PM.

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

from elmokit.text._english_tokens import (
    BEFORE_NUMBER,
    CLOSING,
    DAYS,
    INNER,
    MONTHS,
    SHORT,
    STARTERS,
    TITLES,
    token_pattern,
)
from elmokit.text.sentence import Sentence, cut_all

# The look-behind keeps it linear: a run of marks is entered at its first mark only.
_CANDIDATE = re.compile(
    r"(?<![.!?…])(?<![.!?…]\s)(?P<stop>[.!?…]++(?>(?:\s[.!?…]++)*))"
    r"(?P<close>[\])}\"'”’»]*+(?>(?:\s*+[:;=][-'’o]?[)(DP](?!\w)|\s*+\^_\^)?))"
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


class EnglishTokenizer:
    """Tokens as in the English Web Treebank; the module says how."""

    name = "english"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, token_pattern(ascii_only=text.isascii()).finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences; each is cut into the tokens that `tokenize` gives for its text."""
        return cut_all(text, sentence_spans(text), token_pattern(ascii_only=text.isascii()))


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
