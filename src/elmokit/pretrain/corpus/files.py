"""Arrays on disk: checked before they are used, or spooled until all words are counted and have their numbers."""

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.config import Count, Range
from elmokit.errors import FormatError

_CHUNK_BYTES = 1 << 24
_CHUNK_SENTENCES = 1 << 16


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What a file must be: its size and the CRC-32 of its contents."""

    bytes: Count
    crc32: Annotated[int, Range(0, 0xFFFFFFFF)]


class ArrayWriter:
    """Arrays written one after the other, little-endian, with the check of the whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream = path.open("wb")
        self.bytes = self.crc32 = 0

    def write(self, values: NDArray[Any]) -> None:
        data = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).data.cast("B")
        self.crc32 = zlib.crc32(data, self.crc32)
        self.bytes += len(data)
        self.stream.write(data)

    def close(self) -> FileCheck:
        """The file is safe on the disk once this returns."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        return FileCheck(self.bytes, self.crc32)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.stream.close()


def check_file(path: Path, expected: FileCheck, *, contents: bool = True) -> None:
    """Raises where the file is not the one that was written. Without `contents` only its size is looked at."""
    advice = "delete the folder that holds it and prepare the corpus again"
    if not path.is_file():
        raise FormatError(f"{path}: is missing; {advice}")
    if (size := path.stat().st_size) != expected.bytes:
        raise FormatError(f"{path}: has {size} bytes, expected {expected.bytes}; {advice}")
    if not contents:
        return
    crc32 = 0
    for chunk in _chunks(path):
        crc32 = zlib.crc32(chunk, crc32)
    if crc32 != expected.crc32:
        raise FormatError(f"{path}: has CRC-32 {crc32:08x}, expected {expected.crc32:08x}: it is damaged; {advice}")


def map_array(path: Path, kind: np.dtype[Any], expected: FileCheck, *, contents: bool = True) -> NDArray[Any]:
    """The file as a read-only memory-mapped array, once it is found to be whole."""
    check_file(path, expected, contents=contents)
    if expected.bytes == 0:
        return np.zeros(0, dtype=kind)  # nothing cannot be mapped
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))  # a plain view of it: slices are cheaper


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


class _Segment(NamedTuple):
    run: int
    sentences: int


class TokenSpool:
    """Sentences in order, their words numbered by the run of the counter that was current."""

    def __init__(self, folder: Path, part: str) -> None:
        self.paths = folder / f"{part}.spooled-tokens", folder / f"{part}.spooled-lengths"
        self.streams = [path.open("wb") for path in self.paths]
        self.segments: list[_Segment] = []
        self.sentences = self.tokens = 0

    def add(self, run: int, tokens: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> None:
        if not len(lengths):
            return
        for stream, values in zip(self.streams, (tokens, lengths), strict=True):
            stream.write(np.ascontiguousarray(values, dtype=np.uint32).data)
        if self.segments and self.segments[-1].run == run:
            self.segments[-1] = _Segment(run, self.segments[-1].sentences + len(lengths))
        else:
            self.segments.append(_Segment(run, len(lengths)))
        self.sentences += len(lengths)
        self.tokens += len(tokens)

    def __enter__(self) -> "TokenSpool":
        return self

    def __exit__(self, *error: object) -> None:
        for stream in self.streams:
            stream.close()

    def chunks(self) -> Iterator[tuple[int, NDArray[np.uint32], NDArray[np.uint32]]]:
        """(run, tokens, lengths) in the order they came, some ten thousand sentences at a time, once all are added."""
        with self.paths[0].open("rb") as tokens, self.paths[1].open("rb") as lengths:
            for run, left in self.segments:
                while left:
                    taken = np.fromfile(lengths, dtype=np.uint32, count=min(left, _CHUNK_SENTENCES))
                    left -= len(taken)
                    yield run, np.fromfile(tokens, dtype=np.uint32, count=int(taken.sum(dtype=np.int64))), taken
