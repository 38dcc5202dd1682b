"""Any script: words by Unicode categories, sentences by the marks that end them."""

import re
from functools import cache

from elmokit.text.characters import emoji, marks
from elmokit.text.sentence import Sentence


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
    run = f"(?:(?![{han}])[^\\W_]|[{marks()}])++"
    return re.compile(f"[{han}][{marks()}]*+|{run}|{emoji()}|(\\S)\\1*+")


_END = re.compile("[。！？｡।॥؟۔։።]+[」』）”’\"')]*|[.!?…]+[”’»\"')\\]]*(?=\\s)|\n\\s*\n")
