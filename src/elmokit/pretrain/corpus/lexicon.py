"""The words of a corpus: the lexicon of all of them, and the target vocabulary of those that can be predicted.

The lexicon is on disk, most frequent words first, as one memory-mapped run of UTF-8. Shards hold numbers of lexicon
words. Its first V words are the target vocabulary: a word is `<UNK>` as a target exactly when its number is V or more.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.chars import BOS, EOS, PAD, UNK, WORD_BEGIN, WORD_END, ByteCodec, Codec, TypeRows
from elmokit.errors import FormatError
from elmokit.formats import ReadReport, read_lines
from elmokit.formats.atomic import atomic_write
from elmokit.pretrain.corpus.files import FileCheck, map_array

SPECIALS = (BOS, EOS, UNK)
TEXT, STARTS, COUNTS = "lexicon.text", "lexicon.starts", "lexicon.counts"


class Lexicon:
    """Words by number. `counts` are those of the training part: a word of the held-out part alone has 0."""

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.uint64], counts: NDArray[np.uint64]) -> None:
        self.text, self.starts, self.counts = text, starts, counts

    @classmethod
    def open(cls, folder: Path, files: Mapping[str, FileCheck], *, contents: bool = True) -> "Lexicon":
        """The lexicon in a folder. Without `contents` only sizes are checked, as when it was written just now."""
        kinds = {TEXT: "u1", STARTS: "<u8", COUNTS: "<u8"}
        return cls(
            *(map_array(folder / name, np.dtype(k), files[name], contents=contents) for name, k in kinds.items())
        )

    def __len__(self) -> int:
        return len(self.counts)

    @cached_property
    def lengths(self) -> NDArray[np.uint32]:
        """Bytes of each word."""
        return np.diff(self.starts).astype(np.uint32)

    def words(self, ids: ArrayLike) -> list[str]:
        numbers = np.asarray(ids, dtype=np.int64)
        spans = zip(self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True)
        return [self.text[a:b].tobytes().decode() for a, b in spans]

    def first_words(self, n: int) -> list[str]:
        """The n most frequent words, read in one go."""
        ends = self.starts[: n + 1].tolist()
        text = self.text[: ends[-1]].tobytes()
        return [text[a:b].decode() for a, b in pairwise(ends)]

    def rows(self, ids: ArrayLike, codec: Codec) -> TypeRows:
        """What `codec.encode` gives for these words. (U, W)"""
        if type(codec) is not ByteCodec:
            return codec.encode(self.words(ids))
        numbers = np.asarray(ids, dtype=np.int64)  # (U,)
        starts = self.starts[numbers].astype(np.int64)  # (U,)
        whole = self.starts[numbers + 1].astype(np.int64) - starts  # (U,)
        kept = np.minimum(whole, codec.width - 2)  # (U,)
        inside = np.arange(kept.max(initial=0)) < kept[:, None]  # (U, longest)
        places = (starts[:, None] + np.arange(inside.shape[1]))[inside]
        rows = np.full((len(numbers), codec.width), PAD, dtype=np.int32)  # (U, C)
        rows[:, 0] = WORD_BEGIN
        rows[:, 1 : 1 + inside.shape[1]][inside] = self.text[places].astype(np.int32) + 1
        rows[np.arange(len(numbers)), kept + 1] = WORD_END
        if codec.boundary_tokens:
            for word, row in ((BOS, codec.begin), (EOS, codec.end)):
                letters = np.frombuffer(word.encode(), dtype=np.uint8)
                same = np.flatnonzero(whole == len(letters))
                same = same[(self.text[starts[same, None] + np.arange(len(letters))] == letters).all(axis=1)]
                rows[same] = row
        return rows


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
