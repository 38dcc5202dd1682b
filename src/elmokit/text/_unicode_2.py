"""Any script, second version: as `unicode` cuts, with rules for clitics, abbreviations, dates and addresses.

What differs from version 1. All rules go by the shape of words, none by a list of words of a language, but for the
English endings behind an apostrophe.

- Apostrophes, in Latin script: an ending is cut off with its apostrophe (dog 's, we 're), and n't as a whole (do n't);
  so is an elided word in front (l' homme, dell' acqua): up to five letters that end in a consonant or u, before a vowel
  or h. Others stay inside (O'Neill, м'я, o'zbek).
- Abbreviations keep their stop: letters with stops between them (U.S., z.B., т.е.), and words of two or three letters
  without a vowel before a space and a word (Dr. Smith, vs. him); neither ends a sentence, nor does a single capital.
  The stop that ends the text is a token of its own.
- Dates, fractions and telephone numbers are one token: 9/11, 2001-09-11, 713-853-3989; so are decades and ordinals
  (1960s, 20th), host and file names in ASCII (example.com, notes.txt), @names, #tags and emoticons.
- Arabic, Hebrew and Indic words keep their marks and joiners, and the hyphen-like maqaf and the kashida stay as in
  version 1; scripts without spaces are cut as there.
- With lists that were learnt from a text (`text.abbreviations`), the abbreviations in them keep their stop too, unless
  it ends the text. A sentence ends behind them, and behind letters with stops, where a starter follows.
"""

import re
from functools import lru_cache

from elmokit.text.abbreviations import Lists
from elmokit.text.sentence import Sentence, cut_all
from elmokit.text.unicode import _HAN, _HIRAGANA, _KATAKANA, _KHMER, _MYANMAR, _THAI_LAO, emoji, marks, sentence_spans

_VOWELS = (
    "aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýāēīōūăĕĭŏŭąęįųőűœảạắằẳẵặấầẩẫậẻẽẹếềểễệỉĩịỏọốồổỗộơớờởỡợủũụưứừửữựỳỷỹỵ"
    "аеёиоуыэюяіїєαεηιουωάέήίόύώ"
)
_LATIN = "A-Za-zÀ-ÖØ-öø-ɏḀ-ỿ"
_BEFORE = re.compile(r"(?<![^\W_])(?:\d{1,2}|[^\W\d_]{1,3}|(?:[^\W\d_]\.){1,9}[^\W\d_])$")  # where it is that short
_WORD_BEFORE = re.compile(r"(?<![^\W_])[^\W\d_]+(?:\.[^\W\d_]+)*$")
_WORD_AFTER = re.compile(r"[^\W\d_]+")
KINDS = {
    "address": "web or mail address, host or file name, @name, #tag",
    "abbreviation": "letters with stops, a short word without a vowel and its stop, or one that was learnt",
    "number": "digits with separators between them",
    "elision": "elided word before a vowel",
    "clitic": "ending with its apostrophe",
    "word": "letters, digits and their marks",
    "character": "script without spaces: a character, a run or a cluster",
    "emoticon": "emoticon or emoji",
    "mark": "mark, or a run of one mark",
}


class UnicodeTokenizer2:
    """Words and sentences of any script; the module says how."""

    name = "unicode"
    version = 2

    def __init__(self, lists: Lists | None = None) -> None:
        self.lists = lists
        if lists is not None:
            self.name = f"unicode+{lists.named}"
            self._short, self._starters = frozenset(lists.abbreviations), frozenset(lists.starters)

    @property
    def _token(self) -> re.Pattern[str]:
        return _token_pattern(self.lists.abbreviations if self.lists else ())

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, self._token.finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences; each is cut into the tokens that `tokenize` gives for its text."""
        return cut_all(text, sentence_spans(text, _goes_on if self.lists is None else self._goes_on), self._token)

    def kinds(self, text: str) -> list[str]:
        """Which of `KINDS` each token of `tokenize` is."""
        return [match.lastgroup or "mark" for match in self._token.finditer(text)]

    def _goes_on(self, text: str, match: re.Match[str]) -> bool:
        """The same, with lists."""
        before = _WORD_BEFORE.search(text, max(0, match.start() - 40), match.start())
        if match["stop"] != "." or before is None or not text[match.end()].isalpha():
            return _goes_on(text, match)
        following = _WORD_AFTER.match(text, match.end())
        starts = following is not None and following[0] in self._starters
        if before[0] in self._short or "." in before[0]:
            return not starts
        return _goes_on(text, match)


@lru_cache(maxsize=16)
def _token_pattern(learnt: tuple[str, ...] = ()) -> re.Pattern[str]:
    """The one expression that finds the next token; the names of its groups are the kinds."""
    mark = f"[{marks()}]"
    letter = f"[^\\W_{_HAN}{_HIRAGANA}{_KATAKANA}{_THAI_LAO}{_KHMER}{_MYANMAR}]"
    run = f"{letter}++(?>(?:{mark}++{letter}*+)*)"
    edge = f"(?![^\\W_])(?!{mark})"
    final = "\\.(?=[\\s\"”'’)\\]]*+\\Z)"  # the stop that ends the text
    quote = "['’]"
    vowel, alpha = f"(?i:[{_VOWELS}])", "[^\\W\\d_]"
    ending = f"(?i:s|m|d|re|ve|ll){edge}"
    address = (
        "(?:https?://|www\\.)[!-~]{0,2000}[A-Za-z0-9/&=#~%+_-]"
        "|[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?"
        "|(?<![\\w.])[a-z0-9][a-z0-9-]{1,60}+(?:\\.[a-z0-9-]{2,60}+){0,4}?\\.[a-z]{2,5}(?![\\w.@-])"
        "|(?<![\\w@#])[@#][^\\W\\d]\\w{1,80}+"
    )
    abbreviation = (
        f"(?<![^\\W_]){alpha}(?>(?:\\.{alpha}){{1,9}}){edge}(?:(?!{final})\\.)?"
        f"|(?<![^\\W_])(?!{vowel}){alpha}(?>(?:(?!{vowel}){alpha}){{1,2}})\\.(?=\\s+[^\\W_])"
        f"|(?<![^\\W_])[^\\W\\d_a-z]\\.(?=\\s+[^\\W\\d_])"
    )
    if learnt:
        longest_first = "|".join(map(re.escape, sorted(learnt, key=lambda word: (-len(word), word))))
        shape = f"(?={alpha}{{1,8}}+(?>(?:\\.{alpha}{{1,8}}+)*)\\.)"  # turns most words away at once
        abbreviation += f"|(?<![^\\W_])(?<!\\.){shape}(?:{longest_first})(?!{final})\\.(?!\\.)"
    number = f"\\+?\\d{{1,4}}+(?>(?:[-.]\\d{{2,4}}+){{2,4}})(?![\\w-])|\\d++(?>(?:[.,:/]\\d++)*)(?:{run})?"
    before = f"(?:(?!{vowel})[{_LATIN}]|[{_LATIN}]{{1,4}}(?:(?!{vowel})[{_LATIN}]|[uU]))"
    elision = f"(?<![^\\W_]){before}{quote}(?=(?:{vowel}|[hH])[{_LATIN}])"
    # Before n't or an ending, the word is what is left.
    stem = f"[{_LATIN}]{{1,12}}?(?=(?i:n{quote}t){edge})"
    word = f"{run}(?>(?:['’·‧\u05f3\u05f4](?!{ending}){run})*)"
    character = (
        f"[{_HAN}]{mark}*+"
        f"|(?>(?:[{_HIRAGANA}ー]{mark}*+)+)"
        f"|(?>(?:[{_KATAKANA}]{mark}*+)+)"
        f"|[\u0e40-\u0e44\u0ec0-\u0ec4]?[{_THAI_LAO}]{mark}*+(?>(?:[\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3]{mark}*+)*)"
        f"|[{_KHMER}]{mark}*+(?>(?:(?<=\u17d2)[{_KHMER}]{mark}*+)*)"
        f"|[{_MYANMAR}]{mark}*+(?>(?:(?<=\u1039)[{_MYANMAR}]{mark}*+|[\u1000-\u1021](?=\u103a){mark}++)*)"
    )
    clitic = f"(?<=[^\\W\\d_]){quote}{ending}|(?<=[^\\W\\d_])(?i:n{quote}t){edge}"
    return re.compile(
        f"(?P<address>{address})"
        f"|(?P<clitic>{clitic})"
        f"|(?P<abbreviation>{abbreviation})"
        f"|(?P<number>{number})"
        f"|(?P<elision>{elision})"
        f"|(?P<word>{stem}|{word})"
        f"|(?P<character>{character})"
        f"|(?P<emoticon>[:;=]['’o-]?[)(DP|](?!\\w)|<3|{emoji()})"
        f"|(?P<mark>([-=*#+~_.!?…])\\10++|\\S{mark}*+)"
    )


def _goes_on(text: str, match: re.Match[str]) -> bool:
    """Does the sentence go on after this stop and space?"""
    following = text[match.end()]
    if following.islower() or following in ".,;:?!…)]}":
        return True
    before = _BEFORE.search(text, max(0, match.start() - 20), match.start())
    if match["stop"] != "." or before is None:
        return False
    short = before[0]
    if short.isdigit() or (len(short) == 1 and short.isupper()) or "." in short:
        return True
    return len(short) > 1 and short.isalpha() and not any(letter in _VOWELS for letter in short.lower())
