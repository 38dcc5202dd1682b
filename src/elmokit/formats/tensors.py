"""Tensors on disk as .safetensors: written whole or not at all, and headers that are checked before they are believed.

A file is the length of its header (8 bytes), the header (JSON: the type, shape and place of each tensor, and metadata
as strings) and the numbers. Everything here works without torch; `weights.storage.stored` takes torch's tensors.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.config import Range, parse_json, revive
from elmokit.errors import ElmokitError, FormatError
from elmokit.formats.atomic import atomic_write

TYPES = {  # as the file names it: NumPy's name, bytes per number
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
    "F32": ("float32", 4),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),  # torch's; NumPy has none
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
NAMES = {name: code for code, (name, _) in TYPES.items()}
LARGEST_HEADER = 100_000_000  # bytes, the format's own limit
CHUNK = 1 << 20

Bytes = Annotated[int, Range(0, 1 << 62)]


class Stored(NamedTuple):
    """A tensor to write: its type as the file names it, its shape, and its bytes in pieces."""

    dtype: str
    shape: tuple[int, ...]
    pieces: Iterable[Any]  # buffers, together as long as type and shape say; a list, where they are read twice

    @classmethod
    def of(cls, array: NDArray[Any]) -> "Stored":
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return cls(NAMES[array.dtype.name], array.shape, [little.reshape(-1).view(np.uint8).data])

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * TYPES[self.dtype][1]

    def checksum(self, name: str, crc32: Callable[[Any, int], int] = zlib.crc32) -> str:
        """CRC-32 of the numbers, then name, type and shape, as 8 hexadecimal digits. `crc32`: a quicker one."""
        return self.seal(name, reduce(lambda crc, piece: crc32(piece, crc), self.pieces, 0))

    def seal(self, name: str, crc: int) -> str:
        """The same from the CRC-32 of the numbers alone, which a writer may know already."""
        return f"{zlib.crc32(f'{name} {self.dtype} {list(self.shape)}'.encode(), crc):08x}"


def write_tensors(
    path: Path, tensors: Mapping[str, NDArray[Any] | Stored], *, metadata: Mapping[str, str] | None = None
) -> None:
    """One file with all of them, the widest types first, so that each is aligned where the file is mapped."""
    stored = {name: t if isinstance(t, Stored) else Stored.of(t) for name, t in tensors.items()}
    ordered = dict(sorted(stored.items(), key=lambda item: (-TYPES[item[1].dtype][1], item[0])))
    with atomic_write(path) as file:
        file.write(encode_header(ordered, metadata=metadata))
        for name, tensor in ordered.items():
            written = sum(file.write(piece) for piece in tensor.pieces)
            assert written == tensor.nbytes, name


def encode_header(
    tensors: Mapping[str, Stored], *, metadata: Mapping[str, str] | None = None, room: int | None = None
) -> bytes:
    """What comes before the numbers, which follow in the order of `tensors`; padded to `room` bytes if given."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()  # to the byte what the safetensors library writes
    size = len(text) + -len(text) % 8 if room is None else room - 8  # the format wants its numbers aligned
    assert len(text) <= size
    return size.to_bytes(8, "little") + text.ljust(size)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a tensor is, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type; bfloat16, which it has not, is read as its bits."""
        return np.dtype("uint16" if self.dtype == "BF16" else TYPES[self.dtype][0]).newbyteorder("<")


@dataclass(frozen=True, slots=True)
class TensorFile:
    """A file whose header was checked: every tensor is as long as it says, and together they fill the file."""

    path: Path
    places: dict[str, Place]
    metadata: dict[str, str]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The rows from `start` to `stop`, copied from the file."""
        place = self.places[name]
        rows, each = place.shape[0], math.prod(place.shape[1:])
        count = max((rows if stop is None else min(stop, rows)) - start, 0) * each
        at = place.begin + start * each * place.numpy.itemsize
        return np.fromfile(self.path, dtype=place.numpy, count=count, offset=at).reshape(-1, *place.shape[1:])

    def map(self, name: str) -> NDArray[Any]:
        """The whole tensor, mapped into memory: only what is used is read."""
        place = self.places[name]
        if 0 in place.shape:
            return np.zeros(place.shape, dtype=place.numpy)
        return np.memmap(self.path, dtype=place.numpy, mode="r", offset=place.begin, shape=place.shape)

    def checksum(self, name: str, crc32: Callable[[Any, int], int] = zlib.crc32) -> str:
        """The same as `Stored.checksum` when the file was written, unless it has changed since."""
        place = self.places[name]
        return Stored(place.dtype, place.shape, self._pieces(place)).checksum(name, crc32)

    def _pieces(self, place: Place) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            file.seek(place.begin)
            for at in range(place.begin, place.end, CHUNK):
                yield file.read(min(CHUNK, place.end - at))


def file_checksum(path: Path) -> str:
    """CRC-32 of a whole file, as 8 hexadecimal digits."""
    with path.open("rb") as file:
        return f"{reduce(lambda crc, piece: zlib.crc32(piece, crc), iter(lambda: file.read(CHUNK), b''), 0):08x}"


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[Bytes, ...]
    data_offsets: tuple[Bytes, Bytes]


def open_tensors(
    path: Path,
    expected: Mapping[str, tuple[str, int]] | None = None,
    *,
    error: type[ElmokitError] = FormatError,
    advice: str = "restore it from a copy",
) -> TensorFile:
    """A file with its header checked; whatever is wrong is an `error` that ends with `advice`.

    `expected` names tensors that must be there: {"codes": ("I8 F16", 2)}, a choice of types and a number of axes.
    """

    def wrong(what: str) -> ElmokitError:
        return error(f"{path}: {what}; {advice}")

    try:
        with path.open("rb") as file:
            whole = file.seek(0, 2)
            file.seek(0)
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= min(LARGEST_HEADER, whole - 8):
                raise wrong(f"not a whole safetensors file (a header of {size:,} bytes in a file of {whole:,})")
            text = file.read(size)
    except OSError as failed:
        raise wrong(f"cannot be read ({failed.strerror})") from None
    header = parse_json(text, dict[str, Any], source=f"{path}: the header", error=error)
    metadata = revive(dict[str, str], header.pop("__metadata__", {}), source=f"{path}: __metadata__", error=error)
    entries = revive(dict[str, _Entry], header, source=f"{path}: the header", error=error)
    at = begin = 8 + size
    places: dict[str, Place] = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.dtype not in TYPES:
            raise wrong(f"{name!r} has type {entry.dtype!r}, expected one of {', '.join(TYPES)}")
        first, end = (begin + offset for offset in entry.data_offsets)
        if first != at or end - first != math.prod(entry.shape) * TYPES[entry.dtype][1]:
            raise wrong(f"{name!r} of shape {entry.shape} and type {entry.dtype} is said to be at {entry.data_offsets}")
        places[name], at = Place(entry.dtype, entry.shape, first, end), end
    if at != whole:
        raise wrong(f"{whole:,} bytes, but its header describes {at:,}")
    for name, (types, axes) in (expected or {}).items():
        if name not in places:
            raise wrong(f"{name!r} is missing")
        if places[name].dtype not in types.split() or len(places[name].shape) != axes:
            found = f"{places[name].dtype} of shape {places[name].shape}"
            raise wrong(f"{name!r} is {found}, expected {' or '.join(types.split())} with {axes} axes")
    return TensorFile(path, places, metadata)
