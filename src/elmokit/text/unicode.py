"""Any script: words by Unicode categories, sentences by the marks that end them. Nothing is normalised.

- A word is a run of letters, digits and the marks on them, in any script with spaces; an apostrophe or middle dot
  between letters stays inside (м'я, l'homme, col·lega), as does a point, comma or colon between digits (3,5). Hyphens,
  dashes and all other marks are tokens of their own; a run of one mark (..., --, !!) is one token, and so is an emoji
  with its modifiers, and a web or mail address in ASCII.
- Scripts without spaces: every Han character is a token; so is each run of Hiragana and each run of Katakana; Thai,
  Lao, Khmer and Myanmar are cut into clusters, a consonant with the vowels and marks written around it, which is a
  syllable or part of one. No dictionary is used, so these are not words.
- Sentences end at 。！？｡ and at the stops of Indic, Arabic, Armenian, Ethiopic, Khmer and Myanmar scripts, with the
  quotes and brackets that close them, but not where Hiragana goes on after a closing bracket (「はい。」と); and at
  . ? ! or an ellipsis before a space, unless a small letter or another mark follows, or a single capital or a number
  of one or two digits precedes (am 3. Oktober, J. Verne). A blank line always ends a sentence; a single line break is a
  space.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from elmokit.text.sentence import Sentence, cut_all

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = "\u3041-\u309f"
_KATAKANA = "\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_THAI_LAO = "\u0e01-\u0e4e\u0e80-\u0ece\u0edc-\u0edf"
_KHMER = "\u1780-\u17d3\u17dc\u17dd"
_MYANMAR = "\u1000-\u103f\u1050-\u108f\u109a-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"

# Marks that end a sentence with or without a space after them; a full-width stop may stand inside a number.
_FULL_STOPS = "。！？｡।॥؟۔։።፧፨។៕။\u037e"
_CLOSING = "\\])}\"'”’»」』）】〉》"
_END = re.compile(
    f"(?<![{_FULL_STOPS}])[{_FULL_STOPS}]++(?:[{_CLOSING}]++(?![{_HIRAGANA}])|(?![{_CLOSING}]))\\s*+"
    f"|(?<![.!?…])(?P<stop>[.!?…]++)[{_CLOSING}]*+\\s++"
    r"|\n[^\S\n]*+\n\s*+"
)
_LAST_WORD = re.compile(r"(?<![^\W_])(?:[^\W\d_]|\d{1,2})$")  # where it is that short


class UnicodeTokenizer:
    """Words and sentences of any script; the module says how."""

    name = "unicode"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, _token_pattern().finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences; each is cut into the tokens that `tokenize` gives for its text."""
        return cut_all(text, sentence_spans(text, _goes_on), _token_pattern())


@cache
def _token_pattern() -> re.Pattern[str]:
    """The one expression that finds the next token."""
    mark = f"[{marks()}]"
    letter = f"[^\\W_{_HAN}{_HIRAGANA}{_KATAKANA}{_THAI_LAO}{_KHMER}{_MYANMAR}]"
    run = f"{letter}++(?>(?:{mark}++{letter}*+)*)"
    address = (
        "(?:https?://|www\\.)[!-~]{0,2000}[A-Za-z0-9/&=#~%+_-]"
        "|[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?"
    )
    return re.compile(
        f"{address}"
        f"|\\d++(?>(?:[.,:]\\d++)*)(?:{run})?"
        f"|{run}(?>(?:['’·‧\u05f3\u05f4]{run})*)"
        f"|[{_HAN}]{mark}*+"
        f"|(?>(?:[{_HIRAGANA}ー]{mark}*+)+)"
        f"|(?>(?:[{_KATAKANA}]{mark}*+)+)"
        # A vowel written before its consonant, the consonant, marks, vowels written after it.
        f"|[\u0e40-\u0e44\u0ec0-\u0ec4]?[{_THAI_LAO}]{mark}*+(?>(?:[\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3]{mark}*+)*)"
        # A consonant, the consonants stacked below it, marks; in Myanmar also a final consonant, marked as one.
        f"|[{_KHMER}]{mark}*+(?>(?:(?<=\u17d2)[{_KHMER}]{mark}*+)*)"
        f"|[{_MYANMAR}]{mark}*+(?>(?:(?<=\u1039)[{_MYANMAR}]{mark}*+|[\u1000-\u1021](?=\u103a){mark}++)*)"
        f"|{emoji()}"
        f"|([-=*#+~_.!?…])\\1++"
        f"|\\S{mark}*+"
    )


def sentence_spans(text: str, goes_on: Callable[[str, re.Match[str]], bool]) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence, without the spaces around it. `goes_on` says whether a stop ends none."""
    start = len(text) - len(text.lstrip())
    final = len(text.rstrip())
    for match in _END.finditer(text, start, final):
        if match["stop"] and text.count("\n", match.start(), match.end()) < 2 and goes_on(text, match):
            continue
        yield start, start + len(text[start : match.end()].rstrip())
        start = match.end()
    if start < final:
        yield start, final


def _goes_on(text: str, match: re.Match[str]) -> bool:
    """Does the sentence go on after this stop and space?"""
    following = text[match.end()]
    if following.islower() or following in ".,;:?!…)]}":
        return True
    before = _LAST_WORD.search(text, max(0, match.start() - 4), match.start())
    initial_or_ordinal = before is not None and (before[0].isupper() or before[0].isdigit())
    return match["stop"] == "." and initial_or_ordinal


@cache
def marks() -> str:
    """Combining marks, and the soft hyphen and joiners: they belong to the character before them."""
    # Where marks stand: not among Chinese characters, Hangul, what is private, and Tangut.
    spans = (0x300, 0x3400), (0xA000, 0xAC00), (0xFB00, 0x17000), (0x18D00, 0x20000), (0xE0100, 0xE01F0)
    codes = [code for first, end in spans for code in range(first, end)]
    kinds = map(unicodedata.category, map(chr, codes))
    return _class([0xAD, *(code for code, kind in zip(codes, kinds, strict=True) if kind[0] == "M"), 0x200C, 0x200D])


@cache
def emoji() -> str:
    """An expression for one emoji as it is seen: a flag, or a picture with its modifiers and what is joined to it."""
    picture = "[\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
    modified = f"{picture}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*+"
    return f"[\U0001f1e6-\U0001f1ff]{{2}}|{modified}(?>(?:\u200d{modified})*)"


def _class(codes: Iterable[int]) -> str:
    """Ranges of these code points."""
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)  # read faster than escapes
