"""`Sentence`, which every stage passes on, and what to do with text that is already cut into tokens."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Protocol

_TOKEN = re.compile(r"\S++")
_LINE = re.compile(r"\S[^\n]*+")
_ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """The tokens of one sentence and, where it came from running text, where each of them stands in it.

    `text[a:b] == tokens[k]` for `offsets[k] == (a, b)`, unless the tokenizer documents that it normalises.
    `start` is where `text` begins in the document it was cut from. `fields` are values that were read with the text,
    such as its year; sentences that differ in them alone are equal.
    """

    tokens: tuple[str, ...]
    text: str | None = None
    offsets: tuple[tuple[int, int], ...] | None = None
    start: int = 0
    fields: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def as_text(self) -> str:
        """Its text, if the places of its tokens are known; else the tokens with spaces between."""
        return " ".join(self.tokens) if self.text is None or self.offsets is None else self.text

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where each token stands in `as_text`."""
        if self.text is not None and self.offsets is not None:
            return self.offsets
        ends = list(accumulate((len(token) + 1 for token in self.tokens), initial=0))
        return tuple((a, b - 1) for a, b in pairwise(ends))

    @property
    def places(self) -> list[tuple[int, int]]:
        """Where each token stands in the document that the sentence was cut from; without offsets, in `as_text`."""
        start = self.start if self.text is not None and self.offsets is not None else 0
        return [(start + a, start + b) for a, b in self.spans]

    @classmethod
    def of(cls, tokens: Iterable[str]) -> "Sentence":
        """A sentence that is already tokenised."""
        return cls(tuple(tokens))

    @classmethod
    def cut(cls, text: str, spans: Iterable[tuple[int, int]], *, start: int = 0) -> "Sentence":
        """A sentence whose tokens are slices of its text."""
        offsets = tuple(spans)
        return cls(tuple([text[a:b] for a, b in offsets]), text, offsets, start)


def cut_all(text: str, spans: Iterable[tuple[int, int]], token: re.Pattern[str]) -> list[Sentence]:
    """The sentences at these places of a document, each cut into the tokens that the expression finds in it."""
    sentences = []
    for start, end in spans:
        part = text[start:end]
        sentences.append(Sentence.cut(part, map(re.Match.span, token.finditer(part)), start=start))
    return sentences


class Tokenizer(Protocol):
    """Running text to sentences of tokens. `name` and `version` stand in every saved model's config."""

    name: str
    version: int

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        ...

    def split(self, text: str) -> Sequence[Sentence]:
        """A paragraph or document as its sentences, each with its `start` in `text`; blank text gives none."""
        ...


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


def unescape_treebank(token: str) -> str:
    """The token as it stood in the text: -LRB- is (, both `` and '' are ", 1\\/2 is 1/2 and \\* is *."""
    if token in _ESCAPED:
        return _ESCAPED[token]
    return token.replace("\\/", "/").replace("\\*", "*") if "\\" in token else token
