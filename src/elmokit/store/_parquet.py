"""Parquet: one row per token, so that a sentence of any length fits and any reader can filter.

Columns: `sentence` (line number from 0), `position`, `token`, and `vector`, or `layer0`, `layer1`, ... where the layers
are kept apart. Sentences without tokens have no row. Written row group by row group; no limit of its own. Vectors are
neither compressed nor looked up in a dictionary: both take time and save nothing.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import count as count_from
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import MissingExtraError
from elmokit.store._draft import Draft
from elmokit.store._parquet_file import ParquetFile, TokenPage
from elmokit.store._records import Record, RecordBlock
from elmokit.store._seal import OPEN, close_seal, not_whole
from elmokit.text.packed import Packed

GROUP_BYTES = 32 << 20  # vectors per row group
GROUP_ROWS = 1 << 15  # small vectors must not make large groups
_U32 = struct.Struct("<I")


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
    """An entry of a file's metadata; None where there is none."""
    pa, pq = load_pyarrow()
    try:
        found = (pq.read_metadata(path).metadata or {}).get(name.encode())
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: names that are not UTF-8
        raise not_whole(path, error) from error
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
    with Draft(path) as draft:
        groups = ParquetGroups(draft, axes=axes, half=half)
        given = count_from(0) if numbers is None else iter(numbers)
        for record in records:
            block = RecordBlock.of([record]) if isinstance(record, Record) else record
            own = np.fromiter(islice(given, len(block)), dtype=np.int64, count=len(block))
            groups.add(block.packed, block.vectors, own)
        groups.finish(metadata)


class ParquetGroups:
    """Sentences to row groups: each ends with the sentence that fills it."""

    def __init__(self, draft: Draft, *, axes: tuple[int, ...], half: bool = False) -> None:
        self.pa, _ = load_pyarrow()
        names = ["vector"] if len(axes) == 1 else [f"layer{k}" for k in range(axes[0])]
        self.layers = len(names)
        self.most = min(max(GROUP_BYTES // ((2 if half else 4) * int(np.prod(axes))), 1), GROUP_ROWS)
        self.file = ParquetFile(draft, self.pa, names, width=axes[-1], half=half, seal=OPEN)
        self.vocabulary = _Vocabulary(self.pa, [])
        self.held: list[_Part] = []
        self.count = 0

    def add(self, block: Packed, vectors: NDArray[Any], numbers: NDArray[np.int64]) -> None:
        """`vectors` (N * L, D) as in `Block`; `numbers` (S,) are those of the sentences."""
        if self.vocabulary.words is not block.words:
            self.vocabulary = _Vocabulary(self.pa, block.words)
        lengths, starts = block.lengths, block.offsets[:-1]  # (S,)
        sentences = np.repeat(numbers, lengths)  # (N,)
        positions = np.arange(len(sentences)) - np.repeat(starts, lengths)
        if self.layers == 1:
            columns: list[NDArray[Any]] = [vectors]
        else:
            first = np.repeat(self.layers * starts, lengths) + positions
            step = np.repeat(lengths, lengths)
            columns = [vectors[first + k * step] for k in range(self.layers)]  # (N, D) each
        begin, N = 0, len(sentences)
        for end in [*self._ends(lengths), N]:
            if end > begin:
                part = slice(begin, end)
                own = _Part(
                    sentences[part], positions[part], block.ids[part], self.vocabulary, [c[part] for c in columns]
                )
                self.held.append(own)
                self.count += end - begin
                begin = end
            if self.count >= self.most:
                self.flush()

    def _ends(self, lengths: NDArray[np.int64]) -> Iterator[int]:
        """Where a row group is full, in tokens of the block; a sentence that fills several is cut."""
        if len(lengths) and lengths.max() > self.most:
            rests = ([self.most] * (n // self.most) + [n % self.most] for n in lengths.tolist())
            lengths = np.array([piece for pieces in rests for piece in pieces])
        sums, full = np.cumsum(lengths), self.most - self.count
        while (k := int(np.searchsorted(sums, full))) < len(sums):
            yield int(sums[k])
            full = int(sums[k]) + self.most

    def flush(self) -> None:
        """Writes the row group that is not full yet."""
        if not self.held:
            return
        held, self.held, self.count = self.held, [], 0
        vectors = [[part.columns[k] for part in held] for k in range(self.layers)]
        sentences = np.concatenate([part.sentences for part in held])
        positions = np.concatenate([part.positions for part in held]).astype(np.int32)
        limits = [part.vocabulary.limits(part.ids) for part in held]
        data = b"".join([part.vocabulary.plain(part.ids) for part in held])
        tokens = TokenPage(data, min(low for low, _ in limits), max(high for _, high in limits))
        self.file.write_group(sentences, positions, tokens, vectors)

    def close(self) -> None:
        self.file.draft.close()

    def finish(self, metadata: Mapping[str, str]) -> None:
        """The rest and the footer."""
        self.flush()
        draft = self.file.draft
        sealed = self.file.finish(metadata)
        draft.close()
        if sealed:
            close_seal(draft.path, draft.crc)


class _Vocabulary:
    """Words as a column of Parquet holds them."""

    def __init__(self, pyarrow: Any, words: list[str]) -> None:
        self.pyarrow, self.words = pyarrow, words
        self.encoded = [word.encode("utf-8", "replace") for word in words]  # lone surrogates become question marks
        self.column = pyarrow.array([_U32.pack(len(word)) + word for word in self.encoded], pyarrow.binary())

    def plain(self, ids: NDArray[np.int32]) -> bytes:
        """Each word's length in four bytes, then the word."""
        found = self.column.take(self.pyarrow.array(ids))
        _, ends, data = found.buffers()
        first, last = (int(np.frombuffer(ends, "<i4", 1, 4 * (found.offset + k))[0]) for k in (0, len(found)))
        return bytes(memoryview(data)[first:last]) if data is not None else b""

    def limits(self, ids: NDArray[np.int32]) -> tuple[bytes, bytes]:
        """The smallest and the largest."""
        there = np.zeros(len(self.encoded), bool)
        there[ids] = True
        used = [self.encoded[k] for k in np.flatnonzero(there).tolist()]
        return min(used), max(used)


class _Part(NamedTuple):
    sentences: NDArray[np.int64]
    positions: NDArray[np.int64]
    ids: NDArray[np.int32]
    vocabulary: _Vocabulary
    columns: list[NDArray[Any]]
