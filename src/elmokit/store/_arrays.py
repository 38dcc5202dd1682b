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


def write_npz(path: Path, records: Iterable[Record], *, comment: str) -> None:
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        archive.comment = comment.encode()
        for line, record in enumerate(records):
            member = zipfile.ZipInfo(f"{line}.npy", date_time=EPOCH)
            with archive.open(member, "w", force_zip64=record.vectors.nbytes > 1 << 30) as file:
                np.lib.format.write_array(file, record.vectors, allow_pickle=False)


def write_safetensors(
    path: Path, records: Callable[[], Iterator[Record]], *, axes: tuple[int, ...], metadata: Mapping[str, str]
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
            "dtype": "F32",
            "shape": [tokens, *axes],
            "data_offsets": [ends, ends + 4 * tokens * int(np.prod(axes))],
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
            file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
