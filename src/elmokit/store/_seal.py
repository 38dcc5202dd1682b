"""A checksum of a whole file that stands inside the file: CRC-32 of all bytes, with BLANK where the checksum stands.

All four formats keep their record as plain bytes, so one rule serves them all.
"""

import re
from pathlib import Path

from elmokit.errors import FormatError
from elmokit.native.checksums import crc32

BLANK = "crc32-________"  # what a record holds until its file is written
# The checksum in a record, also in JSON inside JSON, and with one byte changed. Each begins with fixed bytes, which are
# found many times as fast.
ENTRIES = (
    re.compile(rb"checksum.{4,6}(crc32-|.{6}[0-9a-f]{8})", re.DOTALL),
    re.compile(rb'": "crc32-[0-9a-f]{8}'),
    re.compile(rb'": \\"crc32-[0-9a-f]{8}'),
)
OPEN = re.compile(rb'checksum\\?": \\?"' + BLANK.encode())
CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Puts the checksum into a file whose record holds BLANK; if a text holds the same entry, there will be none."""
    found, at, kept, crc = set(), 0, b"", 0
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            crc = crc32(data, crc)  # BLANK still stands where the checksum will
            joined = kept + data
            if joined.find(BLANK.encode()) >= 0:
                found |= {at - len(kept) + match.start() for match in OPEN.finditer(joined)}
            at += len(data)
            kept = joined[-64:]
    if len(found) == 1:
        close_seal(path, crc, near=found.pop())


def close_seal(path: Path, crc: int, *, near: int | None = None) -> None:
    """Puts this checksum where BLANK stands; without `near`, at its last place."""
    with path.open("r+b") as file:
        if near is None:
            size = file.seek(0, 2)
            while near is None and size > 0:
                size -= CHUNK
                file.seek(max(size, 0))
                found = file.read(CHUNK + 64).rfind(BLANK.encode())
                near = max(size, 0) + found if found >= 0 else None
            assert near is not None
        file.seek(near)
        at = near + file.read(64).index(BLANK.encode())
        file.seek(at)
        file.write(f"crc32-{crc:08x}".encode())


def is_sealed(path: Path) -> bool:
    """Whether a file holds its own checksum, found without a look at what the file says of itself."""
    for at in _find(path, re.compile(rb'checksum\\?": \\?"crc32-[0-9a-f]{8}')):
        with path.open("rb") as file:
            file.seek(at)
            entry = file.read(64)
        begin = entry.index(b"crc32-")
        if f"crc32-{_crc(path, at + begin):08x}".encode() == entry[begin : begin + len(BLANK)]:
            return True
    return False


def is_open(path: Path) -> bool:
    """Whether a record of the file still waits for its checksum."""
    return bool(_find(path, OPEN))


def holds_seal(path: Path) -> bool:
    """Whether a checksum stands in a file, though its record may be past reading."""
    return any(_find(path, entry) for entry in ENTRIES)


def not_whole(path: Path, error: Exception) -> FormatError:
    """What to say of a file that its library cannot open."""
    return FormatError(f"{path}: damaged or incomplete ({error}); copy or make it again")


def _find(path: Path, wanted: re.Pattern[bytes]) -> list[int]:
    """Where it stands in the file; never longer than 64 bytes."""
    found, at, kept = set(), 0, b""
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            found |= {at - len(kept) + match.start() for match in wanted.finditer(kept + data)}
            at += len(data)
            kept = (kept + data)[-64:]
    return sorted(found)


def _crc(path: Path, blank: int) -> int:
    """CRC-32 of the file with BLANK at that place."""
    crc = 0
    with path.open("rb") as file:
        while data := file.read(min(CHUNK, blank - file.tell()) if file.tell() < blank else CHUNK):
            if file.tell() - len(data) == blank:
                data = BLANK.encode() + data[len(BLANK) :]
            crc = crc32(data, crc)
    return crc
