"""Approximate search: a navigable graph of all rows (HNSW, by the usearch library), mapped from disk.

The graph holds its own int8 copy of the vectors, without the mean at the time it was begun, and only proposes rows: the
index ranks them by what it stores. Vectors that came later are added to it, and until then are scanned.
"""

import json
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.config import Count, Range, Share, read_json
from elmokit.errors import FormatError, MissingExtraError
from elmokit.formats.atomic import atomic_path, write_text
from elmokit.formats.resumable import disk_errors
from elmokit.index.exact import centred
from elmokit.index.segment import Segment, encode_rows
from elmokit.layers import Vectors

DESCRIPTION = "graph.json"
ADVICE = f"delete {DESCRIPTION} and run  elmokit index -o FOLDER,  which makes the graph again"
CONNECTIVITY, EXPANSION_ADD = 16, 128
ROWS = 4096  # added at once, by all threads


@dataclass(frozen=True, slots=True)
class HnswDescription:
    """`graph.json`: which file, what it covers, and how well it finds what exact search finds."""

    file: str
    rows: Count
    begun_with: Count  # rows whose mean was taken off
    mean: tuple[float, ...]
    expansion: Annotated[int, Range(1, 1 << 20)] = 128  # candidates looked at; more find more and take longer
    recall: Share | None = None  # at 10, against exact search, of rows of the index
    checked: Count = 0  # queries
    checksum: str = ""  # CRC-32 of mean and file; elmokit 0.1.0 recorded none

    def __post_init__(self) -> None:
        if not re.fullmatch(r"graph-\d+\.usearch", self.file):
            raise FormatError(f"file is {self.file!r}; expected a name such as graph-1000.usearch")


def load_usearch() -> Any:
    """The library, or what to install."""
    try:
        import usearch.index
    except ImportError:
        raise MissingExtraError("approximate search needs usearch", extra="neighbours") from None
    return usearch.index


class HnswGraph:
    """A graph on disk, mapped. usearch trusts what it reads, so the file is compared with its checksum before."""

    def __init__(self, folder: Path, description: HnswDescription) -> None:
        self.folder, self.description = folder, description
        self.mean = np.array(description.mean, dtype=np.float32)  # (D,)
        self._lock = threading.Lock()
        path = folder / description.file
        if description.checksum and checksum_of(path, self.mean) != description.checksum:
            raise _damaged(path, "does not have the checksum that it was written with")
        if not description.checksum and not _is_sound(path, len(self.mean), description.rows):
            raise _damaged(path, "is not the graph that it was written as")
        self._index = _open(path, len(self.mean), description.rows, lambda index: index.view(str(path)))

    @classmethod
    def open(cls, folder: Path, *, width: int) -> "HnswGraph | None":
        """The graph of an index, or None where there is none yet."""
        path = folder / DESCRIPTION
        if not path.is_file():
            return None
        description = read_json(path, HnswDescription, advice=ADVICE)
        if len(description.mean) != width:
            raise _damaged(path, f"has a mean of {len(description.mean)} numbers, but the index has vectors of {width}")
        return cls(folder, description) if (folder / description.file).is_file() else None

    def __len__(self) -> int:
        return self.description.rows

    def propose(self, vectors: Vectors, *, count: int, expansion: int | None = None) -> list[NDArray[np.int64]]:
        """Rows that may be the nearest of each vector (Q, D), given as it came from the encoder."""
        codes = encode_rows(centred(vectors, self.mean), "int8")[0]  # (Q, D)
        with self._lock:
            self._index.expansion_search = max(expansion or self.description.expansion, count)
            found = [np.asarray(self._index.search(row, count, threads=1).keys, dtype=np.int64) for row in codes]
        if any(rows.size and not 0 <= rows.min() <= rows.max() < len(self) for rows in found):
            raise _damaged(self.folder / self.description.file, f"proposes rows beyond its {len(self):,}")
        return found

    def describe(self, **changes: Any) -> None:
        """Store what was measured."""
        self.description = replace(self.description, **changes)
        write_text(self.folder / DESCRIPTION, json.dumps(asdict(self.description)))


def make_graph(
    folder: Path,
    segments: Sequence[Segment],
    mean: Vectors,
    *,
    earlier: HnswGraph | None,
    threads: int = 0,
    told: Callable[[int], None] = lambda rows: None,
) -> HnswGraph:
    """A graph of all rows: the earlier one with what came since, or a new one where that began with less than half."""
    rows = sum(map(len, segments))
    if earlier is not None and rows <= 2 * earlier.description.begun_with:
        start, begun, mean = len(earlier), earlier.description.begun_with, earlier.mean
        path = folder / earlier.description.file
        index = _open(path, len(mean), start, lambda index: index.load(str(path)))
    else:
        start, begun, index = 0, rows, _new(len(mean))
    told(start)
    base = 0
    for segment in segments:
        for at in range(max(start - base, 0), len(segment), ROWS):
            stop = min(at + ROWS, len(segment))
            codes = encode_rows(centred(segment.decode(at, stop), mean), "int8")[0]  # (n, D); cosines need no scale
            index.add(np.arange(base + at, base + stop, dtype=np.uint64), codes, threads=threads)
            told(stop - at)
        base += len(segment)
    file = f"graph-{rows}.usearch"
    with disk_errors(folder, RuntimeError), atomic_path(folder / file) as draft:
        index.save(str(draft))
        checksum = checksum_of(draft, mean)
    made = HnswDescription(file, rows, begun, tuple(mean.tolist()), checksum=checksum)
    write_text(folder / DESCRIPTION, json.dumps(asdict(made)))
    for old in folder.glob("graph-*.usearch"):  # whoever has one mapped keeps it
        if old.name != file:
            old.unlink()
    return HnswGraph(folder, made)


def _new(width: int) -> Any:
    return load_usearch().Index(
        ndim=width,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EXPANSION_ADD,
        enable_key_lookups=False,  # rows are proposed, never asked for
    )


def _open(path: Path, width: int, rows: int, read: Callable[[Any], object]) -> Any:
    """A graph that `read` has read from a file, if it is of that shape."""
    library = load_usearch()
    try:
        said = library.Index.metadata(str(path)) or {}
        if (said.get("dimensions"), said.get("count_present")) != (width, rows):
            raise ValueError("not a graph of this shape")
        index = _new(width)
        read(index)
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    if len(index) != rows:
        raise _damaged(path, f"holds {len(index):,} rows, expected {rows:,}")
    return index


def _is_sound(path: Path, width: int, rows: int) -> bool:
    """Whether every link of a graph without a checksum (elmokit 0.1.0) leads to a row of it; usearch does not look.

    The file: rows and width (2 x 4 bytes), vectors, 64 bytes of text, 5 numbers of 8 bytes, the level of each node (2),
    then each node: key (8), level (2), and for each level a count (4) and room for so many neighbours (4 each).
    """
    data = np.fromfile(path, dtype=np.uint8)
    at = 8 + rows * width + 64
    begin = at + 40 + 2 * rows
    if len(data) < begin or data[:8].view("<u4").tolist() != [rows, width]:
        return False
    size, links, base, top, entry = data[at : at + 40].view("<u8").tolist()
    levels = data[at + 40 : begin].view("<i2").astype(np.int64)  # (N,)
    if (size, links, base) != (rows, CONNECTIVITY, 2 * CONNECTIVITY) or not rows or levels.min() < 0:
        return False
    lengths = 14 + 4 * base + levels * (4 + 4 * links)
    starts = begin + np.cumsum(lengths) - lengths
    if levels.max() != top or entry >= rows or begin + lengths.sum() != len(data):
        return False

    def lists(places: NDArray[np.int64], most: int) -> bool:
        for some in np.array_split(places, len(places) // ROWS + 1):
            numbers = data[some[:, None] + np.arange(4 + 4 * most)].view("<u4")  # (n, 1 + most)
            used = np.arange(most) < numbers[:, :1]
            if (numbers[:, 0] > most).any() or (numbers[:, 1:][used] >= rows).any():
                return False
        return True

    keys = data[starts[:, None] + np.arange(8)].view("<u8")
    told = data[starts[:, None] + np.arange(8, 10)].view("<i2")[:, 0]
    upper = (starts[levels > k] + 14 + 4 * base + k * (4 + 4 * links) for k in range(top))
    return bool(
        (keys < rows).all()
        and (told == levels).all()
        and lists(starts + 10, base)
        and all(lists(places, links) for places in upper)
    )


def checksum_of(path: Path, mean: Vectors) -> str:
    """CRC-32 of the mean and a file, as 8 hexadecimal digits; 1.5 GB a second."""
    crc = zlib.crc32(mean.astype("<f4").tobytes())
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def _damaged(path: Path, what: str) -> FormatError:
    return FormatError(f"{path}: {what}; {ADVICE}")
