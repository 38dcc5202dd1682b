"""Approximate search: a navigable graph of all rows (HNSW, by the usearch library), mapped from disk.

The graph holds its own int8 copy of the vectors, without the mean at the time it was begun, and only proposes rows: the
index ranks them by what it stores. Rows that came later are added to it, and until then are scanned.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import FormatError, MissingExtraError
from elmokit.formats import atomic_path, write_text
from elmokit.index.exact import centred
from elmokit.index.segment import Rows, Segment, encode_rows

DESCRIPTION = "graph.json"
CONNECTIVITY, EXPANSION_ADD = 16, 128
ROWS = 4096  # added at once, by all threads


@dataclass(frozen=True, slots=True)
class GraphDescription:
    """`graph.json`: which file, what it covers, and how well it finds what exact search finds."""

    file: str
    rows: int
    begun_with: int  # rows whose mean was taken off
    mean: tuple[float, ...]
    expansion: int = 128  # candidates looked at; more find more and take longer
    recall: float | None = None  # at 10, against exact search, of rows of the index
    checked: int = 0  # queries


def load_usearch() -> Any:
    """The library, or what to install."""
    try:
        import usearch.index
    except ImportError:
        raise MissingExtraError("approximate search needs usearch", extra="neighbours") from None
    return usearch.index


class Graph:
    """A graph on disk, mapped."""

    def __init__(self, folder: Path, description: GraphDescription) -> None:
        self.folder, self.description = folder, description
        self.mean = np.array(description.mean, dtype=np.float32)  # (D,)
        self._index = _new(len(self.mean))
        self._index.view(str(folder / description.file))
        self._turn = threading.Lock()  # how far it is searched is set for all of it

    @classmethod
    def open(cls, folder: Path) -> "Graph | None":
        """The graph of an index, or None where there is none yet."""
        path = folder / DESCRIPTION
        if not path.is_file():
            return None
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            description = GraphDescription(**(fields | {"mean": tuple(fields["mean"])}))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{path}: damaged; delete it, and the graph is made again") from error
        return cls(folder, description) if (folder / description.file).is_file() else None

    def __len__(self) -> int:
        return self.description.rows

    def propose(self, vectors: Rows, *, count: int, expansion: int | None = None) -> list[NDArray[np.int64]]:
        """Rows that may be the nearest of each vector (Q, D), given as it came from the encoder."""
        codes = encode_rows(centred(vectors, self.mean), "int8")[0]  # (Q, D)
        with self._turn:
            self._index.expansion_search = max(expansion or self.description.expansion, count)
            return [np.asarray(self._index.search(row, count, threads=1).keys, dtype=np.int64) for row in codes]

    def described(self, **changes: Any) -> None:
        """Keep what was measured."""
        self.description = replace(self.description, **changes)
        write_text(self.folder / DESCRIPTION, json.dumps(asdict(self.description)))


def make_graph(
    folder: Path,
    segments: Sequence[Segment],
    mean: Rows,
    *,
    earlier: Graph | None,
    threads: int = 0,
    told: Callable[[int], None] = lambda rows: None,
) -> Graph:
    """A graph of all rows: the earlier one with what came since, or a new one where that began with less than half."""
    rows = sum(map(len, segments))
    if earlier is not None and rows <= 2 * earlier.description.begun_with:
        start, begun, mean = len(earlier), earlier.description.begun_with, earlier.mean
        index = _new(len(mean))
        index.load(str(folder / earlier.description.file))
    else:
        start, begun, index = 0, rows, _new(len(mean))
    told(start)
    base = 0
    for segment in segments:
        for at in range(max(start - base, 0), len(segment), ROWS):
            stop = min(at + ROWS, len(segment))
            codes = encode_rows(centred(segment.decode(at, stop), mean), "int8")[
                0
            ]  # (n, D); cosines do not mind the scale
            index.add(np.arange(base + at, base + stop, dtype=np.uint64), codes, threads=threads)
            told(stop - at)
        base += len(segment)
    file = f"graph-{rows}.usearch"
    with atomic_path(folder / file) as draft:
        index.save(str(draft))
    made = GraphDescription(file, rows, begun, tuple(mean.tolist()))
    write_text(folder / DESCRIPTION, json.dumps(asdict(made)))
    for old in folder.glob("graph-*.usearch"):  # whoever has one mapped keeps it
        if old.name != file:
            old.unlink()
    return Graph(folder, made)


def _new(width: int) -> Any:
    return load_usearch().Index(
        ndim=width,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        enable_key_lookups=False,  # rows are proposed, never asked for
    )
