"""Text that is already tokenised: tokens between spaces, one sentence a line."""

import re
from collections.abc import Iterator

from elmokit.text.sentence import Sentence, cut_all

_TOKEN = re.compile(r"\S++")
_LINE = re.compile(r"\S[^\n]*+")


class WhitespaceTokenizer:
    """Tokens are what stands between white space; a line is a sentence, and blank lines give none."""

    name = "whitespace"
    version = 1

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return Sentence.cut(text, map(re.Match.span, _TOKEN.finditer(text)))

    def split(self, text: str) -> list[Sentence]:
        """The lines that hold a token. A line ends at a line feed, with or without a carriage return before it."""
        return cut_all(text, _lines(text), _TOKEN)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each line that is not blank, without the spaces around it."""
    for match in _LINE.finditer(text):
        yield match.start(), match.start() + len(match.group().rstrip())
