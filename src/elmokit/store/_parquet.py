"""Parquet: one row per token, so that a sentence of any length fits and any reader can filter.

Columns: `sentence` (line number from 0), `position`, `token`, and `vector`, or `layer0`, `layer1`, ... where the layers
are kept apart. Sentences without tokens have no row. Written row group by row group; no limit of its own. A thread
writes a row group while the next one is computed, so that a GPU does not wait for it. Vectors are neither compressed
nor looked up in a dictionary: both take time and save nothing.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count as count_from
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import MissingExtraError
from elmokit.store._records import Record

GROUP_BYTES = 32 << 20  # vectors per row group
GROUP_ROWS = 1 << 15  # tokens are Python objects until they are written: small vectors must not make large groups


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet module, or the line that installs them."""
    try:
        import pyarrow
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
    records: Iterable[Record],
    *,
    axes: tuple[int, ...],
    metadata: Mapping[str, str],
    numbers: Iterable[int] | None = None,
) -> None:
    """`axes` is the shape of one token's vectors: (D,) or (L, D); `numbers` are those of the sentences, else from 0."""
    pa, pq = load_pyarrow()
    width = axes[-1]
    names = ["vector"] if len(axes) == 1 else [f"layer{k}" for k in range(axes[0])]
    vector = pa.list_(pa.float32(), width)
    columns = {"sentence": pa.int64(), "position": pa.int32(), "token": pa.string(), **dict.fromkeys(names, vector)}
    schema = pa.schema(list(columns.items()), metadata=dict(metadata))
    rows = min(max(GROUP_BYTES // (4 * int(np.prod(axes))), 1), GROUP_ROWS)

    def table(parts: list[tuple[int, int, Record]]) -> Any:
        lines = np.concatenate([np.full(len(r.tokens), line, dtype=np.int64) for line, _, r in parts])
        places = np.concatenate([np.arange(at, at + len(r.tokens), dtype=np.int32) for _, at, r in parts])
        tokens = pa.array([t.encode("utf-8", "replace").decode() for _, _, r in parts for t in r.tokens], pa.string())
        joined = np.concatenate([r.vectors for _, _, r in parts], axis=-2).reshape(len(names), -1, width)  # (L, N, D)
        flat = [pa.FixedSizeListArray.from_arrays(pa.array(layer.reshape(-1)), width) for layer in joined]
        return pa.Table.from_arrays([pa.array(lines), pa.array(places), tokens, *flat], schema=schema)

    plain = ["sentence", "position", "token"]
    packed = {**dict.fromkeys(plain, "snappy"), **dict.fromkeys((f"{name}.list.element" for name in names), "none")}
    options = {"use_dictionary": plain, "write_statistics": plain, "compression": packed}
    with pq.ParquetWriter(path, schema, **options) as writer, ThreadPoolExecutor(1) as thread:
        held: list[tuple[int, int, Record]] = []
        count = 0
        written: Future[None] | None = None
        for line, record in zip(count_from(0) if numbers is None else numbers, records, strict=False):
            for at in range(0, len(record.tokens), rows):
                part = slice(at, at + rows)
                piece = Record(record.text, record.tokens[part], record.vectors[..., part, :])
                held.append((line, at, piece))
                count += len(piece.tokens)
                if count >= rows:
                    if written:
                        written.result()  # memory holds two row groups, no more
                    written = thread.submit(writer.write_table, table(held))
                    held, count = [], 0
        if written:
            written.result()
        if held:
            writer.write_table(table(held))
