"""Which sentences there were, each once, on disk: a corpus may hold more text than memory does."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    text: str
    line: int


class SentenceIndex:
    """Sentences and the last line each stands on."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self.path, self.added = path, 0
        self.database = sqlite3.connect(path, isolation_level=None)
        # It is made anew by every run that needs it, so it need not survive a crash.
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
        """Sentences that stood somewhere before."""
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
