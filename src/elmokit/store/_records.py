"""A sentence with its vectors as it goes to disk, and an index of all sentences of a file."""

import json
import math
import sqlite3
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import FormatError
from elmokit.text.packed import Packed

META = struct.Struct("<I")  # length of the JSON in front of the numbers


class Record(NamedTuple):
    """One sentence and its vectors."""

    text: str
    tokens: tuple[str, ...]
    vectors: NDArray[np.float32]  # (T, D) or (L, T, D)

    @classmethod
    def unpack(cls, payload: bytes) -> "Record":
        """As a log of 0.1.0 holds it."""
        try:
            (length,) = META.unpack_from(payload)
            text, tokens, shape = json.loads(payload[META.size : META.size + length])
            vectors = np.frombuffer(payload, dtype="<f4", offset=META.size + length).reshape(shape)
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            raise FormatError(f"a stored sentence cannot be read ({error}); start again with --restart") from error
        return cls(text, tuple(tokens), vectors)


BLOCK = 0xFFFFFFFF  # in place of that length: several sentences


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Sentences one after another, with their vectors in one array."""

    texts: list[str]
    tokens: list[tuple[str, ...]]
    vectors: NDArray[Any]  # (N * L, D) float32 or float16: sentence by sentence, layer by layer, token by token
    layers: tuple[int, ...]  # (L,), or () for one vector a token

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sentence."""
        return np.fromiter(map(len, self.tokens), dtype=np.int64, count=len(self.tokens))

    @property
    def packed(self) -> Packed:
        """The sentences without their texts."""
        return Packed.of_tokens(self.tokens)

    def __iter__(self) -> Iterator[Record]:
        L, D = math.prod(self.layers), self.vectors.shape[1]
        at = 0
        for text, tokens in zip(self.texts, self.tokens, strict=True):
            end = at + L * len(tokens)
            yield Record(text, tokens, self.vectors[at:end].reshape(*self.layers, len(tokens), D))
            at = end

    def pack(self) -> tuple[bytes, NDArray[Any]]:
        """Two buffers that `unpack` reads."""
        kind = "f2" if self.vectors.dtype == np.float16 else "f4"
        meta = json.dumps([self.texts, self.tokens, self.layers, self.vectors.shape[1], kind]).encode()
        return META.pack(BLOCK) + META.pack(len(meta)) + meta, np.ascontiguousarray(self.vectors, dtype=f"<{kind}")

    @classmethod
    def unpack(cls, payload: bytes | memoryview) -> "RecordBlock":
        """Also a single sentence, as 0.1.0 wrote it."""
        if META.unpack_from(payload) != (BLOCK,):
            return cls.of([Record.unpack(bytes(payload))])
        try:
            (length,) = META.unpack_from(payload, META.size)
            start = 2 * META.size
            texts, tokens, layers, width, kind = json.loads(bytes(payload[start : start + length]))
            vectors = np.frombuffer(payload, dtype={"f2": "<f2", "f4": "<f4"}[kind], offset=start + length)
            return cls(texts, list(map(tuple, tokens)), vectors.reshape(-1, width), tuple(layers))
        except (ValueError, TypeError, KeyError, RecursionError, struct.error) as error:
            raise FormatError(f"stored sentences cannot be read ({error}); start again with --restart") from error

    @classmethod
    def of(cls, records: Sequence[Record]) -> "RecordBlock":
        """Records brought together."""
        shape = records[0].vectors.shape
        vectors = np.concatenate([record.vectors.reshape(-1, shape[-1]) for record in records])
        return cls([r.text for r in records], [r.tokens for r in records], vectors, shape[:-2])


class Place(NamedTuple):
    text: str
    line: int


class SentenceIndex:
    """Sentences and the last line each stands on; on disk, since a corpus may hold more text than memory does."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path, self.added = path, 0
        self.database = sqlite3.connect(path, isolation_level=None)
        # It is made again by every run that needs it, so it need not survive a crash.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8000"):
            self.database.execute(f"PRAGMA {pragma}")
        self.database.execute("CREATE TABLE sentences (text BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID")

    def add_all(self, texts: Sequence[str], line: int) -> None:
        """Sentences that stand one after another, from this line on."""
        # As bytes: lone surrogates are text to Python and to JSON, but not to SQLite.
        rows = [(text.encode("utf-8", "surrogatepass"), line + k) for k, text in enumerate(texts)]
        self.database.execute("BEGIN")
        self.database.executemany("INSERT OR REPLACE INTO sentences VALUES (?, ?)", rows)
        self.database.execute("COMMIT")
        self.added += len(texts)

    @property
    def duplicates(self) -> int:
        """Sentences that also stand on an earlier line."""
        (distinct,) = self.database.execute("SELECT count(*) FROM sentences").fetchone()
        return self.added - int(distinct)

    def __iter__(self) -> Iterator[Place]:
        for text, line in self.database.execute("SELECT text, line FROM sentences"):
            yield Place(text.decode("utf-8", "surrogatepass"), line)

    def last_line(self, text: str) -> int:
        stored = text.encode("utf-8", "surrogatepass")
        (line,) = self.database.execute("SELECT line FROM sentences WHERE text = ?", (stored,)).fetchone()
        return int(line)

    def close(self) -> None:
        self.database.close()
        self.path.unlink(missing_ok=True)
