"""A sentence with its vectors as it goes to disk, and an index of all sentences of a file."""

import json
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import FormatError

META = struct.Struct("<I")  # length of the JSON in front of the numbers


class Record(NamedTuple):
    """One sentence and its vectors."""

    text: str
    tokens: tuple[str, ...]
    vectors: NDArray[np.float32]  # (T, D) or (L, T, D)

    def pack(self) -> bytes:
        meta = json.dumps([self.text, self.tokens, self.vectors.shape], ensure_ascii=True).encode()
        return META.pack(len(meta)) + meta + np.ascontiguousarray(self.vectors, dtype="<f4").tobytes()

    @classmethod
    def unpack(cls, payload: bytes) -> "Record":
        try:
            (length,) = META.unpack_from(payload)
            text, tokens, shape = json.loads(payload[META.size : META.size + length])
            vectors = np.frombuffer(payload, dtype="<f4", offset=META.size + length).reshape(shape)
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            raise FormatError(f"a stored sentence cannot be read ({error}); start again with --restart") from error
        return cls(text, tuple(tokens), vectors)


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

    def add(self, text: str, line: int) -> None:
        # As bytes: lone surrogates are text to Python and to JSON, but not to SQLite.
        stored = text.encode("utf-8", "surrogatepass")
        self.database.execute("INSERT OR REPLACE INTO sentences VALUES (?, ?)", (stored, line))
        self.added += 1

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
