"""Zstandard streams, through the optional library."""

import io
from typing import Any

from elmokit.errors import FormatError, MissingExtraError

_CHUNK_BYTES = 1 << 13  # a frame can expand a chunk enormously; small chunks keep that bounded


def open_zst(stream: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    """The decompressed bytes of a Zstandard stream of one or more frames, long-window archives included."""
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(f"{name} is compressed with Zstandard", extra="zst") from error
    return io.BufferedReader(_Frames(stream, name, zstandard))


class _Frames(io.RawIOBase):
    # The library's own stream reader takes a cut-off file for a complete one, so frames are followed by hand.
    def __init__(self, stream: io.BufferedIOBase, name: str, library: Any) -> None:
        self.stream, self.name, self.library = stream, name, library
        self.frame: Any = None
        self.input, self.output = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.output:
            self.input = self.input or self.stream.read(_CHUNK_BYTES)
            if not self.input:
                if self.frame is not None:
                    raise EOFError("the last frame has no end")
                return 0
            self.output = memoryview(self._advance())
        taken = min(len(buffer), len(self.output))
        buffer[:taken] = self.output[:taken]
        self.output = self.output[taken:]
        return taken

    def _advance(self) -> bytes:
        if self.frame is None:
            self.frame = self.library.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        try:
            output: bytes = self.frame.decompress(self.input)
        except self.library.ZstdError as error:
            raise FormatError(
                f"{self.name}: the compressed data is damaged ({error}); copy or download the file again"
            ) from error
        self.input = b""
        if self.frame.eof:
            self.input, self.frame = self.frame.unused_data, None
        return output
