"""Any script: words by Unicode categories, sentences by the marks that end them."""

import re
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

from elmokit.text.sentence import Sentence


def _character_class(belongs: Callable[[int], bool]) -> str:
    """The inside of a regular expression's [...] for all code points that belong."""
    ranges: list[list[int]] = []
    for code in (*range(0x20000), *range(0xE0000, 0xE0200)):
        if not belongs(code):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges)


# Combining marks, and the joiners and soft hyphens that stand inside words.
MARKS = _character_class(lambda code: unicodedata.category(chr(code))[0] == "M" or code in (0xAD, 0x200C, 0x200D))
_PICTURE = "[\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff]"
EMOJI = f"[\U0001f1e6-\U0001f1ff]{{2}}|{_PICTURE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+(?:\u200d{_PICTURE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*+)*+"


class UnicodeTokenizer:
    """Words of any script."""

    name = "unicode"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, _token_pattern().finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """A paragraph or document as its sentences."""
        sentences, start = [], 0
        for end in (*(m.end() for m in _END.finditer(text)), len(text)):
            part = text[start:end]
            begin = start + len(part) - len(part.lstrip())
            start = end
            if part.strip():
                part = part.strip()
                sentences.append(Sentence.cut(part, map(re.Match.span, _token_pattern().finditer(part)), start=begin))
        return sentences


@cache
def _token_pattern() -> re.Pattern[str]:
    han = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    run = f"(?:(?![{han}])[^\\W_]|[{MARKS}])++"
    return re.compile(f"[{han}][{MARKS}]*+|{run}|{EMOJI}|(\\S)\\1*+")


_END = re.compile("[。！？｡।॥؟۔։።]+[」』）”’\"')]*|[.!?…]+[”’»\"')\\]]*(?=\\s)|\n\\s*\n")
