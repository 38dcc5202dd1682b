"""A segment: some tens of thousands of occurrences in one file that appears whole or not at all.

The file is a .safetensors: `codes` (n, D) int8 or float16 and `scales` (n,), whose product is the vector; `total`
(D,), the sum of all; and where each occurrence stands: `words` (n,) in the segment's own vocabulary, `sentences` (n,),
`positions` (n,) among the tokens, `spans` (n, 2) among the characters. Its metadata say how far into which text it
goes, which is what a killed build goes on from.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from elmokit.errors import FormatError
from elmokit.formats import atomic_path
from elmokit.formats.resumable import Position
from elmokit.index.settings import Precision
from elmokit.text import Sentence

Rows = NDArray[np.float32]
NUMPY = {"I8": "i1", "F16": "<f2", "F32": "<f4", "F64": "<f8", "U8": "u1", "U32": "<u4", "U64": "<u8"}
PATTERN = "segment-*.safetensors"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a text has been read when a segment was closed, and what it looked like up to there."""

    run: int
    sentences: int = 0
    digest: str = ""

    @property
    def position(self) -> Position:
        return Position(self.sentences, self.digest)


def encode_rows(vectors: Rows, precision: Precision) -> tuple[NDArray[Any], Rows]:
    """Codes (n, D) and scales (n,): a vector is its codes times its scale."""
    if precision == "float16":
        largest = np.finfo(np.float16).max
        return np.clip(vectors, -largest, largest).astype(np.float16), np.ones(len(vectors), dtype=np.float32)
    peaks = np.abs(vectors).max(axis=1, initial=0)  # (n,)
    scales = np.where(peaks > 0, peaks, 1).astype(np.float32) / np.float32(127)  # (n,)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


class SegmentWriter:
    """Occurrences while they are gathered, in their compressed form."""

    def __init__(self, width: int, precision: Precision) -> None:
        self.width, self.precision = width, precision
        self.codes: list[NDArray[Any]] = []
        self.scales: list[Rows] = []
        self.places: list[NDArray[np.uint32]] = []  # (n, 5): word, sentence, position, begin, end
        self.vocabulary: dict[str, int] = {}
        self.texts: list[bytes] = []
        self.rows = 0

    def add(self, sentence: Sentence, positions: Sequence[int], vectors: Rows) -> None:
        """The vectors (n, D) of a sentence's words at these positions."""
        text, spans = sentence.as_text, sentence.spans
        codes, scales = encode_rows(vectors, self.precision)
        self.codes.append(codes)
        self.scales.append(scales)
        number = len(self.texts)
        places = [
            (self.vocabulary.setdefault(sentence.tokens[t], len(self.vocabulary)), number, t, *spans[t])
            for t in positions
        ]
        self.places.append(np.array(places, dtype=np.uint32))
        self.texts.append(text.encode("utf-8", "surrogatepass"))
        self.rows += len(positions)

    def write(self, path: Path, progress: Progress) -> None:
        codes = np.concatenate(self.codes)  # (n, D)
        scales = np.concatenate(self.scales)  # (n,)
        places = np.concatenate(self.places)  # (n, 5)
        total = np.zeros(self.width)
        for at in range(0, len(codes), 4096):
            some = codes[at : at + 4096].astype(np.float32) * scales[at : at + 4096, None]
            total += some.sum(axis=0, dtype=np.float64)
        words = [word.encode("utf-8", "surrogatepass") for word in self.vocabulary]
        arrays = {
            "codes": codes,
            "scales": scales,
            "total": total,
            "words": places[:, 0].copy(),
            "sentences": places[:, 1].copy(),
            "positions": places[:, 2].copy(),
            "spans": places[:, 3:].copy(),
            "vocabulary": _bytes(words),
            "vocabulary_ends": np.cumsum([len(w) for w in words], dtype=np.uint64),
            "text": _bytes(self.texts),
            "text_ends": np.cumsum([len(t) for t in self.texts], dtype=np.uint64),
        }
        kept = {"progress": json.dumps(asdict(progress))}  # one field: safetensors writes several in any order
        with atomic_path(path) as draft:
            draft.write_bytes(save(arrays, metadata=kept))  # not save_file, whose files none but their owner may read


class Segment:
    """A segment on disk. Single rows come from a memory map, long stretches are read: a scan does not fill memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                self._header: dict[str, Any] = json.loads(file.read(size))
            self._begin = 8 + size
            self.progress = Progress(**json.loads(self._header["__metadata__"]["progress"]))
            self.rows, self.width = self._header["codes"]["shape"]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: not a segment of an index, or damaged; restore it from a copy") from error
        end = max(part["data_offsets"][1] for name, part in self._header.items() if name != "__metadata__")
        if path.stat().st_size != self._begin + end:
            raise FormatError(f"{path}: shorter or longer than it says; restore it from a copy")

    def __len__(self) -> int:
        return int(self.rows)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Rows of an array, copied from the file."""
        dtype, shape, begin = self._place(name)
        stop = shape[0] if stop is None else min(stop, shape[0])
        each = int(np.prod(shape[1:]))
        at = begin + start * each * dtype.itemsize
        return np.fromfile(self.path, dtype=dtype, count=max(stop - start, 0) * each, offset=at).reshape(-1, *shape[1:])

    def decode(self, start: int, stop: int) -> Rows:
        """A stretch of vectors, copied from the file. (n, D)"""
        decoded: Rows = self.read("codes", start, stop).astype(np.float32)
        decoded *= self.scales[start:stop, None]
        return decoded

    def _place(self, name: str) -> tuple[np.dtype[Any], list[int], int]:
        part = self._header[name]
        return np.dtype(NUMPY[part["dtype"]]), part["shape"], self._begin + part["data_offsets"][0]

    def _mapped(self, name: str) -> NDArray[Any]:
        dtype, shape, begin = self._place(name)
        if 0 in shape:
            return np.zeros(shape, dtype=dtype)
        return np.memmap(self.path, dtype=dtype, mode="r", offset=begin, shape=tuple(shape))

    @cached_property
    def codes(self) -> NDArray[Any]:
        return self._mapped("codes")

    @cached_property
    def scales(self) -> Rows:
        return self.read("scales")

    @cached_property
    def total(self) -> NDArray[np.float64]:
        return self.read("total")

    @cached_property
    def words(self) -> NDArray[np.uint32]:
        return self.read("words")

    @cached_property
    def sentences(self) -> NDArray[np.uint32]:
        return self._mapped("sentences")

    @cached_property
    def positions(self) -> NDArray[np.uint32]:
        return self._mapped("positions")

    @cached_property
    def spans(self) -> NDArray[np.uint32]:
        return self._mapped("spans")

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        text, at = self.read("vocabulary").tobytes(), 0
        found: dict[str, int] = {}
        for number, end in enumerate(self.read("vocabulary_ends").tolist()):
            found[text[at:end].decode("utf-8", "surrogatepass")] = number
            at = end
        return found

    @cached_property
    def spellings(self) -> list[str]:
        return list(self.vocabulary)

    @cached_property
    def _texts(self) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        return self._mapped("text"), self.read("text_ends")

    def text(self, sentence: int) -> str:
        text, ends = self._texts
        begin = int(ends[sentence - 1]) if sentence else 0
        return text[begin : int(ends[sentence])].tobytes().decode("utf-8", "surrogatepass")

    def vectors(self, rows: NDArray[np.int64]) -> Rows:
        """Single rows, decoded. (n, D)"""
        decoded: Rows = self.codes[rows].astype(np.float32) * self.scales[rows, None]
        return decoded


def _bytes(parts: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)
