"""`WordTable`: words and one vector for each, in memory or mapped from a file.

The file is a .safetensors of three tensors: `vectors` (V, D) float32, `words` (bytes, UTF-8, one after another) and
`lengths` (V,), the bytes of each word. The vectors are mapped, not read: memory holds the words and the rows in use.
Its metadata holds a checksum of each tensor; opening a file checks the words, `elmokit verify` the vectors too.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.config import parse_json
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import atomic_path, atomic_write
from elmokit.formats.tensors import Stored, TensorFile, encode_header, open_tensors
from elmokit.layers import Vectors

Block = tuple[list[str], Vectors]  # some words and their rows (n, D)
MARK = "elmokit static vectors"
PARTS = {"vectors": ("F32", 2), "lengths": ("U32", 1), "words": ("U8", 1)}  # types and axes
ADVICE = "copy or make it again"
HEADER_BYTES = 1024  # kept free in front while the rows are written, since their number is known at the end only
BLOCK_ROWS = 4096
WHITE = re.compile(r"[ \t\r\n\v\f]")


@dataclass(frozen=True)
class WordTable:
    """Row k of `vectors` belongs to word k."""

    words: Sequence[str]
    vectors: Vectors  # (V, D)
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

    def vector(self, word: str) -> Vectors | None:
        """The word's vector (D,), or None."""
        place = self.places.get(word)
        return None if place is None else self.vectors[place]

    def rows(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The row of each word; -1 for one that is not there. (n,)"""
        return np.fromiter(map(self.places.get, words, repeat(-1)), np.int64, len(words))

    @cached_property
    def mean(self) -> Vectors:
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
    crc = 0
    with atomic_write(path) as file:
        file.seek(HEADER_BYTES)
        for some, rows in blocks:
            fresh = []
            for k, word in enumerate(some):
                if word not in words:
                    words[word] = None
                    fresh.append(k)
            data = np.ascontiguousarray(rows[fresh], dtype="<f4").tobytes()
            crc = zlib.crc32(data, crc)
            file.write(data)
        texts = [word.encode("utf-8", "surrogatepass") for word in words]
        parts = {
            "vectors": Stored("F32", (len(words), width), []),  # written above
            "lengths": Stored.of(np.array([len(text) for text in texts], dtype=np.uint32)),
            "words": Stored("U8", (sum(map(len, texts)),), texts),
        }
        for part in parts.values():
            file.writelines(part.pieces)
        sums = {name: part.checksum(name) for name, part in parts.items()}
        sums["vectors"] = parts["vectors"].seal("vectors", crc)
        file.seek(0)
        file.write(encode_header(parts, metadata={"format": MARK, "checksums": json.dumps(sums)}, room=HEADER_BYTES))


def read_table(path: Path, *, source: str = "") -> WordTable:
    """A file that `write_table` wrote, its vectors mapped."""
    file = _open(path, "lengths", "words")
    lengths = file.read("lengths")  # (V,)
    text = file.read("words").tobytes()
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    if len(lengths) != file.places["vectors"].shape[0] or (ends or [0])[-1] != len(text):
        raise FormatError(f"{path}: {len(lengths):,} words for other vectors or other text; {ADVICE}")
    try:
        words = [text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise([0, *ends])]
    except UnicodeDecodeError:
        raise FormatError(f"{path}: a word is not UTF-8; {ADVICE}") from None
    return WordTable(words, file.map("vectors"), source or str(path))


def verify_table(path: Path) -> bool:
    """Compares all vectors and words with their checksums; False where there are none (0.1.0)."""
    return "checksums" in _open(path, *PARTS).metadata


def is_table(path: Path) -> bool:
    """Whether `write_table` wrote this file."""
    if path.suffix != ".safetensors" or not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(HEADER_BYTES)


def _open(path: Path, *checked: str) -> TensorFile:
    """The file, these parts of it compared with their checksums; files of 0.1.0 have none."""
    file = open_tensors(path, PARTS, advice=ADVICE)
    if file.metadata.get("format") != MARK:
        raise FormatError(f"{path}: not a file of static vectors that elmokit wrote")
    if "checksums" in file.metadata:
        sums = parse_json(file.metadata["checksums"], dict[str, str], source=f"{path}: checksums")
        for name in checked:
            if file.checksum(name) != sums.get(name):
                raise FormatError(f"{path}: its {name} are not as they were saved; {ADVICE}")
    return file


def export_word2vec(table: WordTable, path: str | Path, *, binary: bool = False, spaces: str | None = None) -> Path:
    """Write word2vec text or binary; numbers come back bit for bit.

    The formats end a word at a space, so a word that holds white space is refused, or written with `spaces` ("_", say)
    in its place.
    """
    path = Path(path)
    with atomic_path(path) as draft, draft.open("wb") as file:
        file.write(f"{len(table)} {table.width}\n".encode())
        for words, rows in table.blocks():
            for word, row in zip(words, np.ascontiguousarray(rows, dtype="<f4"), strict=True):
                name = _name(word, spaces)
                if binary:
                    file.write(name + b" " + row.tobytes() + b"\n")
                else:  # as strings, NumPy writes the fewest digits that tell a float32 from its neighbours
                    file.write(name + b" " + " ".join(row.astype(str)).encode() + b"\n")
    return path


def _name(word: str, spaces: str | None) -> bytes:
    name = word if spaces is None else WHITE.sub(spaces, word)
    if not name or WHITE.search(name):
        raise InputError(
            f"{word!r} cannot be written in word2vec's format, which ends a word at white space; pass spaces='_' to "
            "write '_' instead, or leave the word out"
        )
    return name.encode("utf-8", "replace")
