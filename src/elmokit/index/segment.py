"""A segment: some tens of thousands of occurrences in one file that appears whole or not at all.

The file is a .safetensors: `codes` (n, D) int8 or float16 and `scales` (n,), whose product is the vector; `total`
(D,), the sum of all; and where each occurrence stands: `words` (n,) in the segment's own vocabulary, `sentences` (n,),
`positions` (n,) among the tokens, `spans` (n, 2) among the characters. Where fields of the texts are kept, `fields`
(sentences, F) are numbers of `values`, each of which is stored once. The metadata say up to where in which text the
segment goes, which is where a killed build resumes, and hold a checksum of each array. Arrays that are read as a whole
are compared with theirs when they are read; `Segment.verify` compares all. Version 0.1.0 wrote no checksums.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import Count, parse_json, plain
from elmokit.errors import FormatError, InputError
from elmokit.formats.resumable import Position
from elmokit.formats.tensors import Stored, open_tensors, write_tensors
from elmokit.index.settings import Precision
from elmokit.layers import Vectors
from elmokit.text import Sentence

PATTERN = "segment-*.safetensors"
ADVICE = "restore it from a copy, or make the index again"
ARRAYS = {
    "codes": ("I8 F16", 2),
    "scales": ("F32", 1),
    "total": ("F64", 1),
    "words": ("U32", 1),
    "sentences": ("U32", 1),
    "positions": ("U32", 1),
    "spans": ("U32", 2),
    "vocabulary": ("U8", 1),
    "vocabulary_ends": ("U64", 1),
    "text": ("U8", 1),
    "text_ends": ("U64", 1),
}
FIELDS = {"fields": ("U32", 2), "values": ("U8", 1), "values_ends": ("U64", 1)}  # where the index keeps fields


@dataclass(frozen=True, slots=True)
class Progress:
    """How far run number `run` has read its text when a segment was closed, and a digest of it up to there."""

    run: Count
    sentences: Count = 0
    digest: str = ""
    checksums: dict[str, str] = field(default_factory=dict)  # of the arrays, and of the fields above

    @property
    def position(self) -> Position:
        return Position(self.sentences, self.digest)

    @property
    def own_checksum(self) -> str:
        return f"{zlib.crc32(repr((self.run, self.sentences, self.digest)).encode()):08x}"


def encode_rows(vectors: Vectors, precision: Precision) -> tuple[NDArray[Any], Vectors]:
    """Codes (n, D) and scales (n,): a vector is its codes times its scale."""
    if precision == "float16":
        largest = np.finfo(np.float16).max
        return np.clip(vectors, -largest, largest).astype(np.float16), np.ones(len(vectors), dtype=np.float32)
    peaks = np.abs(vectors).max(axis=1, initial=0)  # (n,)
    scales = np.where(peaks > 0, peaks, 1).astype(np.float32) / np.float32(127)  # (n,)
    return np.rint(vectors / scales[:, None]).astype(np.int8), scales


class SegmentWriter:
    """Occurrences while they are gathered, in their compressed form."""

    def __init__(self, width: int, precision: Precision, *, keep: Sequence[str] = ()) -> None:
        self.width, self.precision, self.keep = width, precision, keep
        self.codes: list[NDArray[Any]] = []
        self.scales: list[Vectors] = []
        self.places: list[NDArray[np.uint32]] = []  # (n, 5): word, sentence, position, begin, end
        self.vocabulary: dict[str, int] = {}
        self.texts: list[bytes] = []
        self.fields: list[list[int]] = []  # a number of `values` for each field of each text
        self.values: dict[str, int] = {}
        self.rows = 0

    def add(self, sentence: Sentence, positions: Sequence[int], vectors: Vectors) -> None:
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
        if self.keep:
            values = sentence.fields or ("",) * len(self.keep)
            if len(values) != len(self.keep):
                raise InputError(
                    f"a sentence has {len(values)} fields ({', '.join(map(repr, values))}), expected {len(self.keep)}: "
                    f"{', '.join(self.keep)}"
                )
            self.fields.append([self.values.setdefault(value, len(self.values)) for value in values])
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
        if self.keep:
            values = [value.encode("utf-8", "surrogatepass") for value in self.values]
            arrays |= {
                "fields": np.array(self.fields, dtype=np.uint32),
                "values": _bytes(values),
                "values_ends": np.cumsum([len(v) for v in values], dtype=np.uint64),
            }
        checksums = {name: Stored.of(array).checksum(name) for name, array in arrays.items()}
        progress = replace(progress, checksums={"progress": progress.own_checksum, **checksums})
        write_tensors(path, arrays, metadata={"progress": json.dumps(plain(progress))})


class Segment:
    """A segment on disk. Single rows come from a memory map, long stretches are read: a scan does not fill memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_tensors(path, ARRAYS, advice=ADVICE)
        self._arrays = ARRAYS
        if not FIELDS.keys().isdisjoint(self._file.places):
            self._arrays = ARRAYS | FIELDS
            self._file = open_tensors(path, self._arrays, advice=ADVICE)
        reached = self._file.metadata.get("progress", "")
        self.progress = parse_json(reached, Progress, source=f"{path}: progress")
        self._checksums = self.progress.checksums
        if self._checksums and (
            self._checksums.keys() != {"progress", *self._arrays}
            or self._checksums["progress"] != self.progress.own_checksum
        ):
            raise self._damaged("its progress does not have the checksum that it was written with")
        shapes = {name: place.shape for name, place in self._file.places.items()}
        self.rows, self.width = shapes["codes"]
        fitting = {"scales": (self.rows,), "total": (self.width,), "spans": (self.rows, 2)}
        fitting |= dict.fromkeys(("words", "sentences", "positions"), (self.rows,))
        self.kept = shapes["fields"][1] if "fields" in shapes else 0  # F
        if self.kept:
            fitting["fields"] = (*shapes["text_ends"], self.kept)
        for name, shape in fitting.items():
            if shapes[name] != shape:
                raise self._damaged(f"{name!r} has shape {shapes[name]}, expected {shape}, to fit the codes")

    def __len__(self) -> int:
        return self.rows

    def read(self, name: str) -> NDArray[Any]:
        """An array as a whole, copied from the file and compared with its checksum."""
        array = self._file.read(name)
        known = self._checksums.get(name)
        if known is not None and Stored.of(array).checksum(name) != known:
            raise self._damaged(f"{name!r} does not have the checksum that it was written with")
        return array

    def verify(self) -> bool:
        """Compare every array with its checksum; False where there are none (elmokit 0.1.0)."""
        for name in self._arrays:
            known = self._checksums.get(name)
            if known is not None and self._file.checksum(name) != known:
                raise self._damaged(f"{name!r} does not have the checksum that it was written with")
        return bool(self._checksums)

    def decode(self, start: int, stop: int) -> Vectors:
        """A stretch of vectors, copied from the file. (n, D)"""
        decoded: Vectors = self._file.read("codes", start, stop).astype(np.float32)
        decoded *= self.scales[start:stop, None]
        return decoded

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self.path}: {what}; {ADVICE}")

    @cached_property
    def codes(self) -> NDArray[Any]:
        return self._file.map("codes")

    @cached_property
    def scales(self) -> Vectors:
        return self.read("scales")

    @cached_property
    def total(self) -> NDArray[np.float64]:
        return self.read("total")

    @cached_property
    def word_ids(self) -> NDArray[np.uint32]:
        words = self.read("words")
        if words.size and int(words.max()) >= len(self.vocabulary):
            raise self._damaged(f"word {int(words.max())} of a vocabulary of {len(self.vocabulary)}")
        return words

    @cached_property
    def sentences(self) -> NDArray[np.uint32]:
        return self._file.map("sentences")

    @cached_property
    def positions(self) -> NDArray[np.uint32]:
        return self._file.map("positions")

    @cached_property
    def spans(self) -> NDArray[np.uint32]:
        return self._file.map("spans")

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        text, at, number = self.read("vocabulary").tobytes(), 0, -1
        found: dict[str, int] = {}
        for number, end in enumerate(self._ends("vocabulary")):
            found[self._decoded(text[at:end])] = number
            at = end
        if len(found) <= number:
            raise self._damaged("a word stands in its vocabulary twice")
        return found

    @cached_property
    def spellings(self) -> list[str]:
        return list(self.vocabulary)

    @cached_property
    def _texts(self) -> tuple[NDArray[np.uint8], list[int]]:
        return self._file.map("text"), self._ends("text")

    def _ends(self, name: str) -> list[int]:
        """Where each piece of a text ends; each at or after the one before it, and the last at the end of the text."""
        ends: list[int] = self.read(f"{name}_ends").tolist()
        size = self._file.places[name].shape[0]
        if any(a > b for a, b in pairwise([0, *ends])) or (ends[-1] if ends else 0) != size:
            raise self._damaged(f"{name!r} is not cut into pieces as it should be")
        return ends

    def _decoded(self, text: bytes) -> str:
        try:
            return text.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise self._damaged(f"{text[:40]!r} is not UTF-8") from None

    def text(self, sentence: int) -> str:
        text, ends = self._texts
        if sentence >= len(ends):
            raise self._damaged(f"sentence {sentence} of {len(ends)}")
        return self._decoded(text[ends[sentence - 1] if sentence else 0 : ends[sentence]].tobytes())

    @cached_property
    def _fields(self) -> tuple[NDArray[np.uint32], list[str]]:
        numbers, text, at = self.read("fields"), self.read("values").tobytes(), 0
        values = []
        for end in self._ends("values"):
            values.append(self._decoded(text[at:end]))
            at = end
        if numbers.size and int(numbers.max()) >= len(values):
            raise self._damaged(f"value {int(numbers.max())} of {len(values)}")
        return numbers, values

    def fields(self, sentence: int) -> tuple[str, ...]:
        """The kept values of a sentence's text, F of them."""
        if not self.kept:
            return ()
        numbers, values = self._fields
        if sentence >= len(numbers):
            raise self._damaged(f"sentence {sentence} of {len(numbers)}")
        return tuple(values[k] for k in numbers[sentence].tolist())

    def vectors(self, rows: NDArray[np.int64]) -> Vectors:
        """Single rows, decoded. (n, D)"""
        decoded: Vectors = self.codes[rows].astype(np.float32) * self.scales[rows, None]
        return decoded


def _bytes(parts: Sequence[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)
