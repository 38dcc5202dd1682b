"""Where stored vectors come from: a record of one JSON object, kept inside every file that `write_vectors` writes.

| file | where the record is |
| --- | --- |
| HDF5 | the attribute `elmokit` of the root |
| Parquet, safetensors | the entry `elmokit` of the metadata |
| npz | the comment of the zip archive |
"""

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elmokit import __version__
from elmokit.config import Count, parse_json, plain
from elmokit.errors import FormatError
from elmokit.store._parquet import read_metadata
from elmokit.store._seal import BLANK, holds_seal, is_open, is_sealed, not_whole
from elmokit.store.hdf5 import read_attribute

KEY = "elmokit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How the vectors of a file were made. An empty `arithmetic` or `input` is not known."""

    version: str = __version__  # of elmokit
    model: str  # where it was read from
    fingerprint: str
    tokenizer: str
    layers: str
    arithmetic: str = ""
    normalise: bool = False
    batch_tokens: int | None = None
    vectors: str = "float32"  # their type in the file
    keys: str = ""  # HDF5: other keys than line numbers, no index of sentences
    input: str = ""  # its name and a digest
    sentences: Count = 0
    tokens: Count = 0
    checksum: str = ""  # of the whole file

    def to_json(self) -> str:
        return json.dumps(plain(self))

    def same_run(self, other: "Provenance") -> bool:
        """Whether both were made from the same input in the same way, by whichever version of elmokit."""
        ignored = {"version", "model", "sentences", "tokens", "checksum"}
        ours, theirs = plain(self), plain(other)
        return bool(self.input) and all(ours[key] == theirs[key] for key in ours if key not in ignored)


def read_provenance(path: str | Path) -> Provenance | None:
    """The record in a file of vectors; None where there is none, as in files of elmokit 0.1.0 and of other tools.

    A file that begins as its name says but cannot be opened is a FormatError.
    """
    path = Path(path)
    readers: dict[str, tuple[int, bytes, Callable[[Path], bytes | None]]] = {  # what stands where at the beginning
        ".h5": (0, b"\x89HDF", lambda p: read_attribute(p, KEY)),
        ".hdf5": (0, b"\x89HDF", lambda p: read_attribute(p, KEY)),
        ".parquet": (0, b"PAR1", lambda p: read_metadata(p, KEY)),
        ".npz": (0, b"PK", _zip_comment),
        ".safetensors": (8, b"{", _safetensors_metadata),
    }
    if path.suffix.lower() not in readers or not path.is_file():
        return None
    at, mark, read = readers[path.suffix.lower()]
    with path.open("rb") as file:
        if not file.read(at + len(mark)).endswith(mark):
            return None
    content = read(path)
    if not content:
        return None
    return parse_json(content, Provenance, source=f"{path}: its record", ignore_unknown=True)


def verify_vectors(path: str | Path) -> bool:
    """Compares a file of vectors with its checksum; False where it has none. Damage is a FormatError."""
    path = Path(path)
    if path.is_file() and is_sealed(path):
        return True
    # A damaged file is not opened by its library where that can be avoided: HDF5 may go round in it for ever.
    damaged = FormatError(f"{path}: not as it was written (its checksum does not fit); copy or embed it again")
    sealed = path.is_file() and holds_seal(path)
    if sealed and not is_open(path):
        raise damaged
    stored = read_provenance(path)
    if stored is not None and stored.checksum == BLANK:
        return False
    if (stored is not None and stored.checksum) or sealed:
        raise damaged
    return False


def _zip_comment(path: Path) -> bytes | None:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment if archive.comment.startswith(b'{"version":') else None
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise not_whole(path, error) from error


def _safetensors_metadata(path: Path) -> bytes | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            found = (file.metadata() or {}).get(KEY)
    except (OSError, SafetensorError) as error:
        raise not_whole(path, error) from error
    return found.encode() if found else None
