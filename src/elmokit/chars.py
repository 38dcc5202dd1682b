"""Words to rows of numbers: the character codec of the official models, ELMoForManyLangs' dictionaries, plain word ids.

A codec turns a word *type* into one row of `width` integers. What the columns mean is between the codec and the token
encoder: character ids for `ByteCodec`, `[word id, character ids...]` for `DictionaryCodec`, one word id for
`WordCodec`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import WeightsError

__all__ = ["ByteCodec", "Codec", "CodecSpec", "DictionaryCodec", "WordCodec"]

TypeRows = NDArray[np.int32]

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"

# Ids of the official files, already shifted by one: 0 is a masked position.
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PAD = 257, 258, 259, 260, 261
N_BYTE_IDS = 262


class Codec(Protocol):
    """Word types to rows; `begin` and `end` are the rows of the sentence boundaries."""

    width: int
    begin: TypeRows  # (W,)
    end: TypeRows  # (W,)

    def encode(self, words: Sequence[str]) -> TypeRows:  # (U, W)
        ...

    def overlong(self, word: str) -> bool:
        """Whether the word does not fit and loses its end."""
        ...


class ByteCodec:
    """UTF-8 bytes of a word between begin-word and end-word, cut to `max_characters - 2` bytes, padded to the limit.

    The cut may split a character, as in the published tools. Lone surrogates are dropped. With `boundary_tokens`, the
    literal tokens `<S>` and `</S>` mean the sentence boundaries (always so in AllenNLP; in bilm-tf only if its
    vocabulary lists them).
    """

    def __init__(self, max_characters: int = 50, *, boundary_tokens: bool = True) -> None:
        self.width = max_characters
        self.boundary_tokens = boundary_tokens
        self.begin = self._row([SENTENCE_BEGIN])
        self.end = self._row([SENTENCE_END])

    def _row(self, ids: list[int]) -> TypeRows:
        row = np.full(self.width, PAD, dtype=np.int32)
        row[: len(ids) + 2] = [WORD_BEGIN, *ids, WORD_END]
        return row

    def encode(self, words: Sequence[str]) -> TypeRows:
        room = self.width - 2
        cut = [word.encode("utf-8", "ignore")[:room] for word in words]
        lengths = np.fromiter(map(len, cut), dtype=np.int64, count=len(cut))  # (U,)
        flat = np.frombuffer(b"".join(cut), dtype=np.uint8)
        rows = np.full((len(cut), self.width), PAD, dtype=np.int32)  # (U, C)
        rows[:, 0] = WORD_BEGIN
        inside = np.arange(room) < lengths[:, None]  # (U, C - 2)
        rows[:, 1:-1][inside] = flat.astype(np.int32) + 1
        rows[np.arange(len(cut)), lengths + 1] = WORD_END
        if self.boundary_tokens:
            for k, word in enumerate(words):
                if word == BOS:
                    rows[k] = self.begin
                elif word == EOS:
                    rows[k] = self.end
        return rows

    def overlong(self, word: str) -> bool:
        return len(word) * 4 > self.width - 2 and len(word.encode("utf-8", "ignore")) > self.width - 2


class WordCodec:
    """One id per word from a vocabulary; words outside it are `<UNK>`."""

    width = 1

    def __init__(self, words: Sequence[str]) -> None:
        self.ids = {word: k for k, word in enumerate(words)}
        self.begin = np.array([self.ids[BOS]], dtype=np.int32)
        self.end = np.array([self.ids[EOS]], dtype=np.int32)
        self.unknown = self.ids[UNK]

    def encode(self, words: Sequence[str]) -> TypeRows:
        ids = [self.ids.get(word, self.unknown) for word in words]
        return np.array(ids, dtype=np.int32).reshape(-1, 1)

    def overlong(self, word: str) -> bool:
        return False


class DictionaryCodec:
    """ELMoForManyLangs: a word id (`<oov>` if unknown) and the ids of up to `max_characters - 2` code points.

    Begin-word and end-word are swapped in its files, in training too: a row is
    `[<eow>, characters..., <bow>, <pad>...]`. An absent dictionary switches that part off.
    """

    def __init__(
        self, *, words: Mapping[str, int] | None, characters: Mapping[str, int] | None, max_characters: int = 50
    ) -> None:
        self.words, self.characters, self.max_characters = words, characters, max_characters
        self.width = (words is not None) + (max_characters if characters is not None else 0)
        self.begin = self._row("<bos>", ["<bos>"])
        self.end = self._row("<eos>", ["<eos>"])

    def _row(self, word: str, symbols: Sequence[str]) -> TypeRows:
        row: list[int] = []
        if self.words is not None:
            row.append(self.words.get(word, self.words["<oov>"]))
        if (known := self.characters) is not None:
            oov = known["<oov>"]
            ids = [known["<eow>"], *(known.get(s, oov) for s in symbols), known["<bow>"]]
            row += ids + [known["<pad>"]] * (self.max_characters - len(ids))
        return np.array(row, dtype=np.int32)

    def encode(self, words: Sequence[str]) -> TypeRows:
        rows = np.empty((len(words), self.width), dtype=np.int32)
        for k, word in enumerate(words):
            cut = word[: self.max_characters - 2]
            rows[k] = self._row(cut, [cut] if cut in ("<bos>", "<eos>") else cut)  # these two mean the boundaries there
        return rows

    def overlong(self, word: str) -> bool:
        return self.characters is not None and len(word) > self.max_characters - 2


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """How words become rows: UTF-8 bytes (official), ids of a vocabulary, or ELMoForManyLangs' dictionaries."""

    kind: Literal["bytes", "words", "dictionary"] = "bytes"
    boundary_tokens: bool = True  # bytes: a literal <S> or </S> means the sentence boundary
    words: tuple[str, ...] | None = None  # words, dictionary: in id order
    characters: tuple[str, ...] | None = None  # dictionary: in id order

    def build(self, max_characters: int) -> Codec:
        if self.kind == "bytes":
            return ByteCodec(max_characters, boundary_tokens=self.boundary_tokens)
        if self.kind == "words":
            if self.words is None:
                raise WeightsError("a word-level model needs its vocabulary; none came with it")
            return WordCodec(self.words)
        return DictionaryCodec(words=_ids(self.words), characters=_ids(self.characters), max_characters=max_characters)


def _ids(symbols: Sequence[str] | None) -> dict[str, int] | None:
    return None if symbols is None else {symbol: k for k, symbol in enumerate(symbols)}
