"""The target vocabulary: the words that the softmax can predict, `<S> </S> <UNK>` among them."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.chars import BOS, EOS, UNK
from elmokit.errors import FormatError
from elmokit.formats import ReadReport, atomic_write, read_lines

SPECIALS = (BOS, EOS, UNK)


class Vocabulary:
    """Distinct words in the order of their ids: `<S> </S> <UNK>`, then others, by frequency where it was made here."""

    def __init__(self, words: Iterable[str], *, name: str = "vocabulary") -> None:
        self.words = tuple(words)
        if (begin := self.words[: len(SPECIALS)]) != SPECIALS:
            raise FormatError(f"{name}: begins with {begin}, expected {SPECIALS}, one word a line")
        if len(self.places) != len(self.words):
            # `places` keeps the last of two equal words, so the first one is not in its own place.
            word = next(word for k, word in enumerate(self.words) if self.places[word] != k)
            raise FormatError(
                f"{name}, line {self.places[word] + 1}: {word!r} stands there again; expected distinct words"
            )
        if "" in self.places or any("\n" in word for word in self.words):
            raise FormatError(f"{name}: holds an empty word or one with a newline; expected one word a line")

    @cached_property
    def places(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def ids(self, tokens: Iterable[str]) -> NDArray[np.int64]:
        """The id of each token, `<UNK>`'s for those outside. (T,)"""
        find, unknown = self.places.get, SPECIALS.index(UNK)
        return np.array([find(token, unknown) for token in tokens], dtype=np.int64)

    @classmethod
    def from_file(cls, path: str | Path) -> "Vocabulary":
        """One word a line, compressed or not; the line is the word's id."""
        report = ReadReport()
        words = list(read_lines(path, report=report))
        if report.bad_bytes:
            raise FormatError(f"{path}: {report.bad_bytes} bytes are not UTF-8; convert the file, as with iconv")
        return cls(words, name=str(path))

    def to_bytes(self) -> bytes:
        """The contents of its file: UTF-8, one word a line."""
        return "".join(f"{word}\n" for word in self.words).encode()

    def save(self, path: str | Path) -> None:
        with atomic_write(path) as stream:
            stream.write(self.to_bytes())
