"""An append-only log of vectors beside the file they are meant for: what a killed run leaves behind, and goes on from.

No output format survives a kill in the middle of writing, so vectors go here first: `out.h5.partial/` holds
`manifest.json` (which run this is) and `records.bin`. A record is a header (kind, length, checksum) and its payload. A
commit record closes a chunk after everything before it has reached the disk; what stands behind the last commit is cut
off on resuming. The spool is as large as the vectors, so twice their room is needed while the file is being finished.
"""

import contextlib
import json
import os
import shutil
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.formats import write_text

RECORDS = "records.bin"
HEADER = struct.Struct("<cQI")  # kind, payload length, CRC-32 of the payload
META = struct.Struct("<I")  # length of the JSON part of a sentence's payload
SENTENCE, COMMIT = b"S", b"C"


class Record(NamedTuple):
    """One sentence as it goes to disk."""

    text: str
    tokens: tuple[str, ...]
    vectors: NDArray[np.float32]  # (T, D) or (L, T, D)


class Commit(NamedTuple):
    """How far the input has been read when a chunk was closed, and what it looked like up to there."""

    sentences: int
    digest: str


@contextlib.contextmanager
def open_spool(target: Path, *, run: Mapping[str, Any], restart: bool) -> Iterator["Spool"]:
    """The spool of a target, gone on with if there is one of the same `run`, begun anew if not or if asked to.

    Its folder stays until `Spool.discard`, so that whatever happens can be gone on from.
    """
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist; create it first")
    folder = target.with_name(target.name + ".partial")
    folder.mkdir(exist_ok=True)
    with (folder / RECORDS).open("a+b") as file:
        _lock(file, folder)
        manifest = folder / "manifest.json"
        if manifest.exists() and not restart:
            _compare(json.loads(manifest.read_text(encoding="utf-8")), dict(run), folder)
        else:
            file.truncate(0)
            write_text(manifest, json.dumps(run, indent=2))
        yield Spool(folder, file)


class Spool:
    """The log while it is open; `done` is the last commit, 0 sentences where there is none."""

    def __init__(self, folder: Path, file: BinaryIO) -> None:
        self.folder, self.file = folder, file
        self.done = Commit(0, "")
        self._recover()

    def append(self, record: Record) -> None:
        meta = json.dumps([record.text, record.tokens, record.vectors.shape], ensure_ascii=True).encode()
        data = np.ascontiguousarray(record.vectors, dtype="<f4").tobytes()
        self._write(SENTENCE, META.pack(len(meta)) + meta + data)

    def commit(self, sentences: int, digest: str) -> None:
        """Close a chunk: all of it is on the disk before the commit is, and the commit before this returns."""
        self._sync()
        self._write(COMMIT, json.dumps([sentences, digest]).encode())
        self._sync()
        self.done = Commit(sentences, digest)

    def records(self) -> Iterator[Record]:
        """All sentences in order, from the disk."""
        self.file.flush()
        with (self.folder / RECORDS).open("rb") as file:
            while (found := _read(file)) is not None:
                kind, payload = found
                if kind == SENTENCE:
                    yield _record(payload)

    def discard(self) -> None:
        """Remove the folder, once its target is complete."""
        self.file.close()
        shutil.rmtree(self.folder)

    def _write(self, kind: bytes, payload: bytes) -> None:
        self.file.write(HEADER.pack(kind, len(payload), zlib.crc32(payload)))
        self.file.write(payload)

    def _sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def _recover(self) -> None:
        """Read the log up to the first record that is not whole, and cut it after the last commit."""
        self.file.seek(0)
        end = 0
        while (found := _read(self.file)) is not None:
            if found[0] == COMMIT:
                sentences, digest = json.loads(found[1])
                self.done = Commit(sentences, digest)
                end = self.file.tell()
        self.file.truncate(end)
        self.file.seek(end)


def _compare(earlier: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    changed = [key for key in sorted({*earlier, *now}) if earlier.get(key) != now.get(key)]
    if changed:
        said = "; ".join(f"{key}: {earlier.get(key)!r} then, {now.get(key)!r} now" for key in changed)
        raise InputError(
            f"{folder} holds an unfinished run with other settings ({said}); repeat that run to finish it, or start "
            f"anew with --restart (restart=True)"
        )


def _lock(file: BinaryIO, folder: Path) -> None:
    """One writer at a time; the lock goes with the process, however that ends."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{folder} is in use by another run; wait for it or write to another file") from None


def _read(file: BinaryIO) -> tuple[bytes, bytes] | None:
    """The next record, or None where there is no whole one."""
    head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    kind, length, checksum = HEADER.unpack(head)
    # A damaged length may be huge: ask for no more than the file has.
    here = file.tell()
    if kind not in (SENTENCE, COMMIT) or here + length > os.fstat(file.fileno()).st_size:
        return None
    payload = file.read(length)
    return (kind, payload) if zlib.crc32(payload) == checksum else None


def _record(payload: bytes) -> Record:
    (length,) = META.unpack_from(payload)
    text, tokens, shape = json.loads(payload[META.size : META.size + length])
    vectors = np.frombuffer(payload, dtype="<f4", offset=META.size + length).reshape(shape)
    return Record(text, tuple(tokens), vectors)
