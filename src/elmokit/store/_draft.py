"""A file that grows at its end, with the CRC-32 of what it holds."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from elmokit.native.checksums import crc32

MUCH = 1 << 18  # bytes that are worth being written beside the checksum's work


class Draft:
    """Bytes one after another. The checksum leaves out the first `front` bytes, which are written last."""

    def __init__(self, path: Path, *, front: int = 0, end: int | None = None, crc: int = 0) -> None:
        """With `end` and `crc` it goes on after so many bytes of a file that is there already."""
        self.path, self.front, self.crc = path, front, crc
        self.at = front if end is None else end
        self.file = path.open("wb" if end is None else "r+b", buffering=0)
        try:
            self.file.truncate(self.at)
            self.file.seek(self.at)
        except BaseException:
            self.file.close()
            raise
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.shutdown()
        self.file.close()

    def write(self, data: Any) -> None:
        if not memoryview(data).nbytes:
            return
        view = memoryview(data).cast("B")
        self.at += len(view)
        if len(view) < MUCH:
            self.crc = crc32(view, self.crc)
            self._put(view)
            return
        summed = self._thread.submit(crc32, view, self.crc)  # Python's lock is free meanwhile
        try:
            self._put(view)
        finally:
            self.crc = summed.result()

    def _put(self, rest: memoryview) -> None:
        while rest:
            rest = rest[self.file.write(rest) :]
