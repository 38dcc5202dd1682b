"""Text that is already tokenised: tokens between spaces, one sentence a line."""

import re

from elmokit.text.sentence import Sentence

_TOKEN = re.compile(r"\S+")


class WhitespaceTokenizer:
    """Tokens are what stands between white space; a line is a sentence, and blank lines give none."""

    name = "whitespace"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, _TOKEN.finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """The lines that hold a token. A line ends at a line feed, with or without a carriage return before it."""
        sentences, start = [], 0
        for line in text.split("\n"):
            sentence = line.strip()
            if sentence:
                begin = start + len(line) - len(line.lstrip())
                sentences.append(Sentence.cut(sentence, map(re.Match.span, _TOKEN.finditer(sentence)), start=begin))
            start += len(line) + 1
        return sentences
