"""Parquet: one row per token, so that a sentence of any length fits and any reader can filter.

Columns: `sentence` (line number from 0), `position`, `token`, and `vector`, or `layer0`, `layer1`, ... where the layers
are kept apart. Sentences without tokens have no row. Written row group by row group; no limit of its own. Vectors are
neither compressed nor looked up in a dictionary: both take time and save nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingExtraError
from elmokit.store._parquet_file import ParquetFile
from elmokit.store._records import Record, RecordBlock
from elmokit.store._seal import OPEN, close_seal

GROUP_BYTES = 32 << 20  # vectors per row group
GROUP_ROWS = 1 << 15  # tokens are Python objects until they are written: small vectors must not make large groups


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet module, or the line that installs them."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("writing Parquet needs pyarrow", extra="parquet") from error
    return pyarrow, pyarrow.parquet


def read_metadata(path: Path, name: str) -> bytes | None:
    """An entry of a file's metadata; None where it is not there or the file is not readable."""
    pa, pq = load_pyarrow()
    try:
        found = (pq.read_metadata(path).metadata or {}).get(name.encode())
    except (OSError, ValueError, pa.ArrowException):  # ValueError: names that are not UTF-8
        return None
    return found if isinstance(found, bytes) else None


def write_parquet(
    path: Path,
    records: Iterable[Record | RecordBlock],
    *,
    axes: tuple[int, ...],
    metadata: Mapping[str, str],
    numbers: Iterable[int] | None = None,
    half: bool = False,
) -> None:
    """`axes` is the shape of one token's vectors: (D,) or (L, D); `numbers` are those of the sentences, else from 0.

    With `half` vectors are float16. A record in `metadata` that is open for a checksum gets it.
    """
    with ParquetGroups(path, axes=axes, half=half) as groups:
        given = count_from(0) if numbers is None else iter(numbers)
        for record in records:
            block = RecordBlock.of([record]) if isinstance(record, Record) else record
            groups.add(block, np.fromiter(islice(given, len(block)), dtype=np.int64, count=len(block)))
        groups.finish(metadata)


class ParquetGroups:
    """Sentences to row groups: each ends with the sentence that fills it."""

    def __init__(self, path: Path, *, axes: tuple[int, ...], half: bool = False) -> None:
        self.pa, _ = load_pyarrow()
        self.path = path
        names = ["vector"] if len(axes) == 1 else [f"layer{k}" for k in range(axes[0])]
        self.layers = len(names)
        self.most = min(max(GROUP_BYTES // ((2 if half else 4) * int(np.prod(axes))), 1), GROUP_ROWS)
        self.file = ParquetFile(path, self.pa, names, width=axes[-1], half=half, seal=OPEN)
        self.held: list[_Part] = []
        self.count = 0

    def __enter__(self) -> "ParquetGroups":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.__exit__()

    def add(self, block: RecordBlock, numbers: NDArray[np.int64]) -> None:
        """`numbers` (S,) are those of the block's sentences."""
        lengths = block.lengths  # (S,)
        starts = np.cumsum(lengths) - lengths
        sentences = np.repeat(numbers, lengths)  # (N,)
        positions = np.arange(len(sentences)) - np.repeat(starts, lengths)
        tokens = [token for sentence in block.tokens for token in sentence]
        if self.layers == 1:
            columns: list[NDArray[Any]] = [block.vectors]
        else:
            first = np.repeat(self.layers * starts, lengths) + positions
            step = np.repeat(lengths, lengths)
            columns = [block.vectors[first + k * step] for k in range(self.layers)]  # (N, D) each
        begin = 0
        for end in self._ends(lengths.tolist()):
            part = slice(begin, end)
            begin = end
            self.held.append(_Part(sentences[part], positions[part], tokens[part], [c[part] for c in columns]))
            if self.count >= self.most:
                self._write()
        if begin < len(tokens):
            rest = slice(begin, None)
            self.held.append(_Part(sentences[rest], positions[rest], tokens[rest], [c[rest] for c in columns]))

    def _ends(self, lengths: list[int]) -> Iterator[int]:
        """Where a row group is full, in tokens of the block; a sentence that fills several is cut."""
        at = 0
        for length in lengths:
            while length:
                piece = min(length, self.most)
                at, length = at + piece, length - piece
                self.count += piece
                if self.count >= self.most:
                    yield at

    def _write(self) -> None:
        held, self.held, self.count = self.held, [], 0
        tokens = [token for part in held for token in part.tokens]
        try:
            column = self.pa.array(tokens, self.pa.string())
        except UnicodeEncodeError:  # lone surrogates
            column = self.pa.array([token.encode("utf-8", "replace").decode() for token in tokens], self.pa.string())
        vectors = [[part.columns[k] for part in held] for k in range(self.layers)]
        sentences = np.concatenate([part.sentences for part in held])
        positions = np.concatenate([part.positions for part in held]).astype(np.int32)
        self.file.write_group(sentences, positions, column, vectors)

    def finish(self, metadata: Mapping[str, str]) -> None:
        """The rest and the footer."""
        if self.held:
            self._write()
        if self.file.finish(metadata):
            close_seal(self.path, self.file.crc)


class _Part(NamedTuple):
    sentences: NDArray[np.int64]
    positions: NDArray[np.int64]
    tokens: list[str]
    columns: list[NDArray[Any]]
