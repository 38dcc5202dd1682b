"""`WordTable`: words and one vector for each, in memory or mapped from a file.

The file is a .safetensors of three tensors: `vectors` (V, D) float32, `words` (bytes, UTF-8, one after another) and
`lengths` (V,), the bytes of each word. The vectors are mapped, not read: memory holds the words and the rows in use.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import FormatError, InputError
from elmokit.formats import atomic_path

Rows = NDArray[np.float32]
Block = tuple[list[str], Rows]  # some words and their rows (n, D)

MARK = "elmokit static vectors"
HEADER_BYTES = 1024  # kept free in front while the rows are written, since their number is known at the end only
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class WordTable:
    """Row k of `vectors` belongs to word k."""

    words: Sequence[str]
    vectors: Rows  # (V, D)
    source: str = "static vectors"

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or len(self.words) != len(self.vectors) or not self.vectors.size:
            raise InputError(
                f"{self.source}: {len(self.words)} words and vectors of shape {self.vectors.shape}, expected at least "
                "one word and as many rows as words"
            )
        if len(self.places) != len(self.words):
            twice = next(word for k, word in enumerate(self.words) if self.places[word] != k)
            raise InputError(f"{self.source}: {twice!r} stands there twice, expected each word once")

    @cached_property
    def places(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    def vector(self, word: str) -> Rows | None:
        """The word's vector (D,), or None."""
        place = self.places.get(word)
        return None if place is None else self.vectors[place]

    @cached_property
    def mean(self) -> Rows:
        """The mean of all vectors. (D,)"""
        total = sum(rows.sum(axis=0, dtype=np.float64) for _, rows in self.blocks())
        return np.asarray(total / len(self), dtype=np.float32)

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for words, rows in self.blocks():
            digest.update(json.dumps(words).encode())
            digest.update(np.ascontiguousarray(rows).tobytes())
        return digest.hexdigest()

    def blocks(self) -> Iterator[Block]:
        """All words and rows, some at a time."""
        for at in range(0, len(self), BLOCK_ROWS):
            yield list(self.words[at : at + BLOCK_ROWS]), np.asarray(self.vectors[at : at + BLOCK_ROWS])

    def save(self, path: str | Path) -> Path:
        """Write a .safetensors file that is mapped into memory when it is read."""
        path = Path(path)
        if path.suffix != ".safetensors":
            raise InputError(f"{path}: expected a name that ends in .safetensors; export_word2vec writes other formats")
        write_table(path, self.blocks(), width=self.width)
        return path


def write_table(path: Path, blocks: Iterable[Block], *, width: int) -> None:
    """The rows as they come; a word that was there before is left out, as other readers do. Whole or not at all."""
    words: dict[str, None] = {}
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.seek(HEADER_BYTES)
        for some, rows in blocks:
            fresh = []
            for k, word in enumerate(some):
                if word not in words:
                    words[word] = None
                    fresh.append(k)
            file.write(np.ascontiguousarray(rows[fresh], dtype="<f4").tobytes())
        texts = [word.encode("utf-8", "surrogatepass") for word in words]
        file.write(np.array([len(text) for text in texts], dtype="<u4").tobytes())
        file.writelines(texts)
        ends = list(accumulate([0, 4 * width * len(words), 4 * len(words), sum(map(len, texts))]))
        shapes = [("vectors", "F32", [len(words), width]), ("lengths", "U32", [len(words)])]
        shapes.append(("words", "U8", [ends[3] - ends[2]]))
        header: dict[str, Any] = {"__metadata__": {"format": MARK}}
        for (name, dtype, shape), span in zip(shapes, pairwise(ends), strict=True):
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": list(span)}
        room = HEADER_BYTES - 8
        file.seek(0)
        file.write(room.to_bytes(8, "little") + json.dumps(header).encode().ljust(room))


def read_table(path: Path, *, source: str = "") -> WordTable:
    """A file that `write_table` wrote, its vectors mapped."""
    header = _header(path)
    if header is None:
        raise FormatError(f"{path}: not a file of static vectors that elmokit wrote")
    begin, parts = header
    count, width = parts["vectors"]["shape"]
    if path.stat().st_size != begin + parts["words"]["data_offsets"][1]:
        raise FormatError(f"{path}: shorter or longer than it says; copy it again")
    vectors = np.memmap(path, dtype="<f4", mode="r", offset=begin, shape=(count, width))  # (V, D)
    at = begin + parts["lengths"]["data_offsets"][0]
    lengths = np.fromfile(path, dtype="<u4", count=count, offset=at)  # (V,)
    text = np.fromfile(path, dtype=np.uint8, offset=begin + parts["words"]["data_offsets"][0]).tobytes()
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    words = [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise([0, *ends])]
    return WordTable(words, vectors, source or str(path))


def is_table(path: Path) -> bool:
    """Whether `write_table` wrote this file."""
    return path.suffix == ".safetensors" and path.is_file() and _header(path) is not None


def _header(path: Path) -> tuple[int, dict[str, Any]] | None:
    """Where the data begins and what the header says; None where it is not one of ours."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        text = file.read(size) if size == HEADER_BYTES - 8 else b""
    if MARK.encode() not in text:
        return None
    parts: dict[str, Any] = json.loads(text)
    return (8 + size, parts) if parts.get("__metadata__", {}).get("format") == MARK else None
