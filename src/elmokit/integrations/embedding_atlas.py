"""An index as a Parquet file that embedding-atlas opens: one row per occurrence of a word.

    export_atlas(Index.open("index"), "atlas.parquet")

Columns: `id`, `word`, `text` (the sentence), `marked` (the same with the word between stars), `start` and `end` (of the
word in it), `vector`, `neighbors` (ids and distances, the nearest first), `projection_x` and `projection_y`, and the
fields of the texts that the index keeps.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.formats.atomic import atomic_path
from elmokit.index import Index
from elmokit.store._parquet import load_pyarrow

__all__ = ["export_atlas"]

BLOCK = 1024  # rows read, searched for and written at a time
Rows = NDArray[np.float32]


def export_atlas(
    index: Index, path: str | Path, *, neighbours: int = 10, told: Callable[[int], None] = lambda rows: None
) -> Path:
    """Write the index for embedding-atlas; memory holds a block of rows. `told` hears how many rows are done.

    The places on the map are the first two principal components of the vectors. A distance is 1 minus the cosine of
    what is left of two vectors when the mean of the index is taken off, as in `neighbors`.
    """
    pa, pq = load_pyarrow()
    path = Path(path)
    if path.suffix != ".parquet":
        raise InputError(f"{path}: expected a name that ends in .parquet")
    if not len(index):
        raise InputError(f"{index.folder}: the index is empty; add text first")
    axes = main_axes(index)  # (D, 2)
    near = pa.struct([("ids", pa.list_(pa.int64())), ("distances", pa.list_(pa.float32()))])
    words = [("word", pa.string()), ("text", pa.string()), ("marked", pa.string())]
    numbers = [("id", pa.int64()), *words, ("start", pa.int32()), ("end", pa.int32())]
    vector = pa.list_(pa.float32(), index.manifest.width)
    places = [("projection_x", pa.float32()), ("projection_y", pa.float32())]
    own = [*numbers, ("vector", vector), ("neighbors", near), *places]
    kept = {name: f"field {name}" if name in dict(own) else name for name in index.settings.keep}
    schema = pa.schema([*own, *((column, pa.string()) for column in kept.values())])
    with atomic_path(path) as draft, pq.ParquetWriter(draft, schema) as writer:
        for first in range(0, len(index), BLOCK):
            rows = np.arange(first, min(first + BLOCK, len(index)))
            vectors = index.vectors(rows)  # (n, D)
            found = [index.occurrence(int(row)) for row in rows]
            x, y = ((vectors - index.mean) @ axes).T  # (n,) each
            columns: dict[str, Any] = {
                "id": rows,
                "word": [o.word for o in found],
                "text": [o.text for o in found],
                "marked": [f"{o.text[: o.start]}*{o.text[o.start : o.end]}*{o.text[o.end :]}" for o in found],
                "start": [o.start for o in found],
                "end": [o.end for o in found],
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), index.manifest.width),
                "neighbors": _neighbours(index, rows, vectors, neighbours),
                "projection_x": x,
                "projection_y": y,
            }
            columns |= {column: [o.fields[name] for o in found] for name, column in kept.items()}
            writer.write_table(pa.table(columns, schema=schema))
            told(len(rows))
    return path


def main_axes(index: Index) -> NDArray[np.float64]:
    """The two directions in which the vectors differ most, each of length 1. (D, 2)"""
    width = index.manifest.width
    products = np.zeros((width, width))
    for first in range(0, len(index), BLOCK):
        left = (index.vectors(np.arange(first, min(first + BLOCK, len(index)))) - index.mean).astype(np.float64)
        products += left.T @ left
    axes = np.linalg.eigh(products)[1][:, ::-1][:, :2]  # (D, 2), the largest first
    signs = np.sign(
        axes[np.abs(axes).argmax(axis=0), [0, 1]]
    )  # an axis has no direction of its own: always the same one
    return np.asarray(axes * signs)


def _neighbours(index: Index, rows: NDArray[np.int64], vectors: Rows, count: int) -> list[dict[str, Any]]:
    """The nearest other rows of each row."""
    found = index.search(vectors, k=min(count + 1, len(index)))
    made = []
    for row, near, scores in zip(rows, found.rows, found.scores, strict=True):
        others = (near >= 0) & (near != row)
        made.append({"ids": near[others][:count].tolist(), "distances": (1 - scores[others][:count]).tolist()})
    return made
