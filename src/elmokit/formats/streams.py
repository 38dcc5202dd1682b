"""Files and standard input to lines of text: decompressed, decoded, newlines made alike, bad bytes counted.

Only `\\n` and `\\r\\n` end a line: U+2028, U+0085 and form feeds stand inside sentences of real corpora. Compression
is recognised by the first bytes, not by the name.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import re
import sys
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from elmokit.errors import ElmokitWarning, FormatError, InputError, MissingExtraError

STDIN = "-"
COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".lzma": "lzma", ".bz2": "bzip2", ".zst": "zstandard"}

_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BINARY = {
    b"\x89HDF": "an HDF5 file",
    b"PAR1": "a Parquet file (read by its name, .parquet, or with --format parquet)",
    b"PK\x03\x04": "a zip archive, such as .npz or .docx",
    b"%PDF-": "a PDF file",
}
_HEAD_BYTES = 16
_BUFFER_BYTES = 1 << 16
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)  # of OSErrors, those without a number: gzip and bz2
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(slots=True)
class ReadReport:
    """What was met on the way; readers add to it as they go."""

    files: int = 0
    lines: int = 0
    blank_lines: int = 0
    bad_bytes: int = 0
    consumed: int = dataclass_field(default=0, compare=False)  # bytes of the files, as they are on the disk

    def add(self, other: "ReadReport") -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def decode(data: bytes) -> tuple[str, int]:
    """UTF-8 with U+FFFD for what is invalid, and the number of invalid bytes."""
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError:
        # Each invalid byte becomes one lone surrogate here, which is how they can be counted.
        bad = len(_SURROGATE.findall(data.decode("utf-8", "surrogateescape")))
        return data.decode("utf-8", "replace"), bad


def mend(text: str) -> tuple[str, int]:
    """Text that UTF-8 can hold: lone surrogates, as JSON escapes can smuggle in, become U+FFFD and are counted."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.subn("\ufffd", text)
    return text, 0


def suffix_of(path: str | Path) -> str:
    """The end of a name that says the format, in small letters: .txt of corpus.TXT.gz."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower()


def source_name(source: str | Path) -> str:
    return "standard input" if str(source) == STDIN else str(source)


@contextlib.contextmanager
def open_bytes(source: str | Path) -> Iterator["ByteStream"]:
    """The decompressed bytes of a file, or of standard input for '-'; damage met while reading is a FormatError."""
    name = source_name(source)
    with contextlib.ExitStack() as stack:
        raw = _open_raw(source, stack)
        stream = _decompress(raw, name)
        if stream is not raw:
            stack.enter_context(contextlib.closing(stream))
        yield ByteStream(_Guarded(stream, name), raw)


def read_lines(source: str | Path, *, report: ReadReport | None = None) -> Iterator[str]:
    """The lines of a file without their ends; `report` is kept up to date as they are taken.

    Without one, bytes that are not UTF-8 are told in a warning when the file has ended.
    """
    if report is None:
        report = ReadReport()
        yield from read_lines(source, report=report)
        warn_of_bad_bytes(report, source_name(source))
        return
    report.files += 1
    before = report.consumed
    with open_bytes(source) as stream:
        first = True
        for line in stream:
            report.consumed = before + stream.consumed
            if first:
                line, first = start_of_text(line, source_name(source)), False
            text, bad = decode(line[: -2 if line.endswith(b"\r\n") else -1] if line.endswith(b"\n") else line)
            report.lines += 1
            report.bad_bytes += bad
            report.blank_lines += not text or text.isspace()
            yield text


def warn_of_bad_bytes(report: ReadReport, name: str) -> None:
    """A warning where the text called `name` is not all UTF-8."""
    if report.bad_bytes:
        warnings.warn(
            f"{name}: bytes that are not UTF-8: {report.bad_bytes:,} (read as U+FFFD); convert the text with iconv",
            ElmokitWarning,
            stacklevel=2,
        )


def look_ahead(lines: Iterator[str]) -> tuple[list[str], Iterator[str]]:
    """The lines up to the first that is not blank, and all lines."""
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    return head, chain(head, lines)


def start_of_text(head: bytes, name: str) -> bytes:
    """The beginning of a text file without a byte order mark; what is no text is refused."""
    for signature, kind in _BINARY.items():
        if head.startswith(signature):
            raise FormatError(f"{name}: is {kind}, expected text")
    head = without_bom(head, name)
    if b"\0" in head[:_HEAD_BYTES]:
        raise FormatError(f"{name}: has zero bytes at its beginning, so it is no UTF-8 text; check what it is")
    return head


def without_bom(head: bytes, name: str) -> bytes:
    """The beginning of a file without a UTF-8 byte order mark; other encodings' marks are refused."""
    if head.startswith(_UTF16):
        raise FormatError(f"{name}: begins with a UTF-16 byte order mark, expected UTF-8; convert it with iconv first")
    return head.removeprefix(_BOM)


def _open_raw(source: str | Path, stack: contextlib.ExitStack) -> io.BufferedIOBase:
    if str(source) == STDIN:
        return cast(io.BufferedIOBase, sys.stdin.buffer)
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path}: is a folder, expected a file; name the files in it or use a pattern such as '*.txt'")
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path (relative to {Path.cwd()})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error


def _decompress(raw: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    head = raw.read(_HEAD_BYTES)
    if raw.seekable():
        raw.seek(-len(head), io.SEEK_CUR)  # not to 0: standard input may have been read by someone before
        stream = raw
    else:
        stream = io.BufferedReader(_Rejoined(head, raw))
    claimed = COMPRESSIONS.get(Path(name).suffix.lower())
    match compression(head, claimed):
        case "gzip":
            return gzip.GzipFile(fileobj=stream)
        case "xz" | "lzma":
            return lzma.LZMAFile(cast(BinaryIO, stream))
        case "bzip2":
            return bz2.BZ2File(stream)
        case "zstandard":
            return open_zst(stream, name)
    if claimed:
        raise FormatError(
            f"{name}: named as {claimed} but does not begin like it ({head[:6]!r}); "
            "copy it again, or rename it if it is plain text"
        )
    return stream


def compression(head: bytes, claimed: str | None = None) -> str | None:
    """The compression that the first bytes of a file tell; `claimed` decides for .lzma, which has no signature."""
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith(b"\xfd7zXZ\x00"):
        return "xz"
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2"
    if head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):
        return "zstandard"
    return claimed if claimed == "lzma" and head else None


class ByteStream(io.BufferedReader):
    """Decompressed bytes, and how far into the file they have come."""

    def __init__(self, stream: "_Guarded", file: io.BufferedIOBase) -> None:
        super().__init__(stream, _BUFFER_BYTES)
        self.file, self.guarded = file, stream
        self._known, self._reads = 0, -1

    @property
    def consumed(self) -> int:
        """Bytes of the file, compressed as it is, that have been read; 0 where that cannot be known."""
        if self._reads != self.guarded.reads:  # asked for at every line, and to ask the system takes long
            self._reads = self.guarded.reads
            self._known = self.file.tell() if self.file.seekable() else 0
        return self._known


class _Rejoined(io.RawIOBase):
    """A stream that cannot be rewound, with its first bytes put back in front."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        taken, self.head = self.head[: len(buffer)], self.head[len(buffer) :]
        # read1 hands over what a pipe has now instead of waiting for a full buffer.
        taken = taken or self.rest.read1(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)


class _Guarded(io.RawIOBase):
    """A stream whose failures name the file; only reading is guarded, not what the caller does between reads."""

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        self.stream, self.name = stream, name
        self.reads = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self.reads += 1
        try:
            taken = self.stream.read1(len(buffer))
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise InputError(f"{self.name}: cannot be read: {error.strerror}") from error
            raise FormatError(
                f"{self.name}: the compressed data is damaged or cut short ({error}); copy or download the file again"
            ) from error
        buffer[: len(taken)] = taken
        return len(taken)


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
