"""A checksum of a whole file that stands inside the file: CRC-32 of all bytes, with BLANK where the checksum stands.

All four formats keep their record as plain bytes, so one rule serves them all.
"""

import re
import zlib
from pathlib import Path

BLANK = "crc32-________"  # what a record holds until its file is written
# The checksum in a record, also in JSON inside JSON, and with one byte changed.
ENTRY = re.compile(rb'checksum.{4,6}(crc32-|.{6}[0-9a-f]{8})|.{8}\\?": \\?"crc32-[0-9a-f]{8}', re.DOTALL)
OPEN = re.compile(rb'checksum\\?": \\?"' + BLANK.encode())
CHUNK = 1 << 20


def seal(path: Path) -> None:
    """Puts the checksum into a file whose record holds BLANK; if a text holds the same entry, there will be none."""
    places = _find(path, OPEN)
    if len(places) == 1:
        with path.open("r+b") as file:
            file.seek(places[0])
            entry = file.read(64)
            at = places[0] + entry.index(BLANK.encode())
            file.seek(at)
            file.write(f"crc32-{_crc(path, at):08x}".encode())


def is_as_sealed(path: Path, checksum: str) -> bool:
    """Whether a file is as it was written; `checksum` is what its record says."""
    places = _find(path, re.compile(re.escape(checksum.encode())))
    return len(checksum) == len(BLANK) and any(f"crc32-{_crc(path, at):08x}" == checksum for at in places)


def holds_seal(path: Path) -> bool:
    """Whether a checksum stands in a file, though its record may be past reading."""
    return bool(_find(path, ENTRY))


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
            crc = zlib.crc32(data, crc)
    return crc
