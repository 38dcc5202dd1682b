"""NumPy's .npz and safetensors.

.npz holds one array per sentence, named by its line number from 0. A zip archive keeps its directory in memory, here as
in every reader: about a kilobyte per sentence, so beyond a million sentences another format serves better.

.safetensors holds two tensors: `vectors` (N, D), all tokens one after another, or (N, L, D) where the layers are kept
apart; and `offsets` (sentences + 1,). Sentence k is `vectors[offsets[k]:offsets[k + 1]]`. It has no limit of its own,
and readers can map it into memory.
"""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from elmokit.store._records import Record

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold: the same vectors make the same file


class NpzFile:
    """One array per sentence."""

    def __init__(self, path: Path) -> None:
        self.archive, self.line = zipfile.ZipFile(path, "w", allowZip64=True), 0

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            member = zipfile.ZipInfo(f"{self.line}.npy", date_time=EPOCH)
            with self.archive.open(member, "w", force_zip64=record.vectors.nbytes > 1 << 30) as file:
                np.lib.format.write_array(file, record.vectors, allow_pickle=False)
            self.line += 1

    def finish(self, comment: str) -> None:
        self.archive.comment = comment.encode()
        self.archive.close()

    def close(self) -> None:
        self.archive.close()


def write_safetensors(
    path: Path,
    records: Callable[[], Iterator[Record]],
    *,
    axes: tuple[int, ...],
    metadata: Mapping[str, str],
    half: bool = False,
) -> None:
    """Two passes over the records, since sizes stand at the front of the file."""
    sentences = tokens = 0
    for record in records():
        sentences += 1
        tokens += len(record.tokens)
    ends = 8 * (sentences + 1)
    header = {
        "__metadata__": dict(metadata),
        "offsets": {"dtype": "I64", "shape": [sentences + 1], "data_offsets": [0, ends]},
        "vectors": {
            "dtype": "F16" if half else "F32",
            "shape": [tokens, *axes],
            "data_offsets": [ends, ends + (2 if half else 4) * tokens * int(np.prod(axes))],
        },
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the format wants its data aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        offset = 0
        file.write(offset.to_bytes(8, "little"))
        for record in records():
            offset += len(record.tokens)
            file.write(offset.to_bytes(8, "little"))
        for record in records():
            vectors = record.vectors if record.vectors.ndim == 2 else record.vectors.swapaxes(0, 1)  # (T, L, D)
            file.write(np.ascontiguousarray(vectors, dtype="<f2" if half else "<f4").tobytes())
