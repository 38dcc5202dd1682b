"""A long run that survives a kill: what is done is on the disk, and the same run again continues after it.

The input is read again from its beginning, and a digest shows whether it is the same as before. Results go to the disk
chunk by chunk, here to a log:

    with open_log(folder, run=settings, restart=False) as log:
        for chunk in read_chunks(sentences, tokens=65_536, done=log.done, what=f"{folder} holds another run"):
            if not chunk.done:
                for result in work(chunk.sentences):
                    log.append(result)
                log.commit(chunk.end)
        finish(log.payloads())
        log.discard()

A run whose results are whole files, such as the segments of an index, stores `chunk.end` in each of them and needs no
log. Chunks depend on the input alone, so a resumed run makes the same chunks as one that was never killed.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import struct
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from elmokit.batch import cut_stream
from elmokit.errors import FormatError, InputError
from elmokit.formats.atomic import write_text
from elmokit.formats.locks import LOCK, locked
from elmokit.text import Sentence
from elmokit.text.packed import Packed, SentenceStream, cut_packed, telling

RECORDS, MANIFEST = "records.bin", "manifest.json"
HEADER = struct.Struct("<cQI")  # kind, length of the payload, CRC-32 of the payload
PAYLOAD, SEVERAL, COMMIT = b"S", b"B", b"C"
COUNT = struct.Struct("<I")  # of the results in one payload, in front of it
T = TypeVar("T")
RESTART = "repeat that run to finish it, or start again with --restart (restart=True)"


class Position(NamedTuple):
    """How far the input has been read, and a digest of everything up to there."""

    sentences: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of an input, the position after it, and whether an earlier run has its results on the disk."""

    sentences: Sequence[T]  # or whatever the input is made of
    end: Position
    done: bool


Chunk = Part[Sentence]


def read_chunks(sentences: Iterable[Sentence], *, tokens: int, done: Position, what: str) -> Iterator[Chunk]:
    """The input in chunks of about `tokens` positions; `done` is where the earlier run has come to.

    An input that differs from the earlier run's before `done` is an InputError that begins with `what`.
    """
    stretches: Iterable[Sequence[Sentence]] = (
        cut_packed(sentences.blocks(), tokens=tokens)
        if isinstance(sentences, SentenceStream)
        else cut_stream(sentences, tokens=tokens)
    )
    return follow(stretches, _tell, done=done, what=what)


def _tell(sentences: Sequence[Sentence], update: Callable[[bytes], object]) -> None:
    if isinstance(sentences, Packed):
        sentences.tell(update)
    else:
        for sentence in sentences:
            update(telling(sentence))


def follow(
    stretches: Iterable[Sequence[T]],
    tell: Callable[[Sequence[T], Callable[[bytes], object]], None],
    *,
    done: Position,
    what: str,
    unit: str = "sentences",
) -> Iterator[Part[T]]:
    """The parts of an input; `tell` hands over what a digest of a stretch is made of."""
    other = InputError(f"{what}: the {done.sentences:,} {unit} done there are not those given now; {RESTART}")
    digest, read = hashlib.blake2b(digest_size=16), 0
    for chunk in stretches:
        tell(chunk, digest.update)
        begin, read = read, read + len(chunk)
        # The earlier input ended inside, or its chunks were others, or it was other input.
        if begin < done.sentences < read or (read == done.sentences and digest.hexdigest() != done.digest):
            raise other
        yield Part(chunk, Position(read, digest.hexdigest()), read <= done.sentences)
    if read < done.sentences:
        raise other


@contextlib.contextmanager
def disk_errors(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """A disk that is full or cannot be written is an InputError; libraries raise errors of other `kinds` for it."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (OSError, *kinds)):
            raise
        known = re.search(r"errno\D{0,3}(\d+)", str(error).lower())  # as HDF5 and Arrow write it
        said = os.strerror(int(known[1])) if known else str(error)
        raise InputError(
            f"{path}: cannot be written: {said}; what is finished is kept: free some space or choose another disk, and "
            "give the same command again"
        ) from error


@contextlib.contextmanager
def open_log(
    folder: Path,
    *,
    run: Mapping[str, Any],
    restart: bool,
    later: Collection[str] = (),
    crc: Callable[..., int] = zlib.crc32,
) -> Iterator["Log"]:
    """The log in a folder, resumed if it belongs to the same `run`; a new one on `restart` or if it holds no results.

    `run` is what must be the same for a run to be resumed; it is kept as JSON. `later` names settings in it that logs
    of earlier versions lack; those that are missing are in `Log.unrecorded`. The folder stays until `Log.discard`.
    `crc` computes a CRC-32 as zlib does, perhaps sooner.
    """
    if not folder.parent.is_dir():
        raise InputError(f"the folder {folder.parent} does not exist; create it first")
    busy = f"{folder} is in use by another run; wait for it to end, or write to another file"
    with locked(folder / LOCK, busy=busy):
        file = (folder / RECORDS).open("a+b")
        try:
            manifest = folder / MANIFEST
            unrecorded: tuple[str, ...] = ()
            if manifest.exists() and os.fstat(file.fileno()).st_size and not restart:
                earlier = _read_manifest(manifest)
                unrecorded = tuple(key for key in later if key not in earlier)
                _compare(earlier, {key: run[key] for key in run if key not in unrecorded}, folder)
            else:
                with disk_errors(folder):
                    file.truncate(0)
                    os.fsync(file.fileno())  # or old results could come back under new settings after a power failure
                    write_text(manifest, json.dumps(run, indent=2))
            yield Log(folder, file, unrecorded, crc)
        finally:
            with contextlib.suppress(OSError):  # what was not committed does not count, and may not fit on the disk
                file.close()


class Summed(NamedTuple):
    """A payload in pieces, and the CRC-32 of them all."""

    views: list[memoryview]
    crc: int


class Stage(NamedTuple):
    """What was appended between two commits."""

    position: Position  # of the second
    end: int  # where that ends in the file
    payloads: list[bytes]


class Log:
    """Results on the disk, appended; `done` is the position at the last commit.

    The file is a sequence of records: a header (kind, length, CRC-32) and a payload, of one result or of several. A
    commit is a record of its own, written when everything before it has reached the disk. What comes after the last
    commit is cut off on resuming.
    """

    def __init__(
        self,
        folder: Path,
        file: BinaryIO,
        unrecorded: tuple[str, ...] = (),
        crc: Callable[..., int] = zlib.crc32,
    ) -> None:
        self.folder, self.unrecorded = folder, unrecorded
        self._file, self._crc = file, crc
        self._recover()

    def append(self, payload: bytes) -> None:
        """One result for each sentence, in the order of the input."""
        self._write(PAYLOAD, payload)

    def append_several(self, count: int, *payload: Any) -> None:
        """The results of `count` sentences in one payload, given as buffers that follow each other."""
        self.append_summed(self.summed(COUNT.pack(count), *payload), kind=SEVERAL)

    def summed(self, *payload: Any) -> "Summed":
        """A payload with its checksum; any thread may work it out before the payload is appended."""
        views = [memoryview(part).cast("B") for part in payload if memoryview(part).nbytes]
        crc = 0
        for view in views:
            crc = self._crc(view, crc)
        return Summed(views, crc)

    def append_summed(self, payload: "Summed", *, kind: bytes) -> None:
        """A payload whose checksum is known."""
        with disk_errors(self.folder):
            self._file.write(HEADER.pack(kind, sum(map(len, payload.views)), payload.crc))
            for view in payload.views:
                self._file.write(view)

    def commit(self, position: Position) -> None:
        """Everything appended so far is on the disk before the commit is, and the commit before this returns."""
        self._sync()
        self._write(COMMIT, json.dumps(position).encode())
        self._sync()
        self.done = position
        self._end = self._file.tell()

    @property
    def end(self) -> int:
        """Where the last commit ends in the file."""
        return self._end

    @property
    def path(self) -> Path:
        return self.folder / RECORDS

    def payloads(self) -> Generator[bytes | memoryview, None, None]:
        """All results up to the last commit, in order, from the disk."""
        found = 0
        with (self.folder / RECORDS).open("rb") as file:
            while file.tell() < self._end and (record := _read(file, self._crc)) is not None:
                kind, payload = record
                if kind != COMMIT:
                    found += _count(kind, payload)
                    yield memoryview(payload)[COUNT.size :] if kind == SEVERAL else payload
        if found != self.done.sentences:
            raise FormatError(
                f"{self.folder / RECORDS}: was damaged after result {found:,} of {self.done.sentences:,} while in use; "
                "check the disk, and run the same command again"
            )

    def stages(self) -> Iterator[Stage]:
        """The same, commit by commit."""
        return read_stages(self.folder, self._crc)

    def cut(self, done: Position, end: int) -> None:
        """Forgets what was appended after an earlier commit."""
        with disk_errors(self.folder):
            self._file.truncate(end)
            self._file.seek(end)
            os.fsync(self._file.fileno())
        self.done, self._end = done, end

    def discard(self) -> None:
        """Remove the folder, once the results are where they belong."""
        self._file.close()
        gone = self.folder.with_name(f".{self.folder.name[:200]}.{secrets.token_hex(6)}.tmp")  # as drafts are called
        with contextlib.suppress(OSError):  # at once: another run may begin there before all is removed
            self.folder.rename(gone)
        shutil.rmtree(gone if gone.exists() else self.folder, ignore_errors=True)

    def _write(self, kind: bytes, payload: bytes) -> None:
        self.append_summed(self.summed(payload), kind=kind)

    def _sync(self) -> None:
        with disk_errors(self.folder):
            self._file.flush()
            os.fsync(self._file.fileno())

    def _recover(self) -> None:
        """Read up to the first record that is not whole, and cut the file after the last good commit."""
        self.done, self._end = _walk(self._file, self._crc)
        self._file.truncate(self._end)
        self._file.seek(self._end)


def read_stages(folder: Path, crc: Callable[..., int] = zlib.crc32) -> Iterator[Stage]:
    """What a log holds, commit by commit, up to the first record that is not whole."""
    held: list[bytes] = []
    with (folder / RECORDS).open("rb") as file:
        while (record := _read(file, crc)) is not None:
            kind, payload = record
            if kind != COMMIT:
                held.append(payload[COUNT.size :] if kind == SEVERAL else payload)
            elif (position := _position(payload)) is not None:
                yield Stage(position, file.tell(), held)
                held = []


def check_log(folder: Path) -> str:
    """How much of an unfinished run is as it was written, in words."""
    _read_manifest(folder / MANIFEST)
    with (folder / RECORDS).open("rb") as file:
        done, end = _walk(file)
        rest = os.fstat(file.fileno()).st_size - end
    after = f"; {rest:,} bytes after it were cut off by a kill, or are damaged: the same command makes them again"
    return f"as it was written up to sentence {done.sentences:,}" + (after if rest else "")


def _walk(file: BinaryIO, crc: Callable[..., int] = zlib.crc32) -> tuple[Position, int]:
    """The last good commit before the first record that is not whole, and where it ends in the file."""
    done, end, found = Position(), 0, 0
    file.seek(0)
    while (record := _read(file, crc)) is not None:
        if record[0] != COMMIT:
            found += _count(*record)
            continue
        position = _position(record[1])
        if position is None or position.sentences != found:
            break
        done, end = position, file.tell()
    return done, end


def _count(kind: bytes, payload: memoryview | bytes) -> int:
    """How many results a payload holds."""
    return int.from_bytes(payload[: COUNT.size], "little") if kind == SEVERAL else 1


def _read(file: BinaryIO, crc: Callable[..., int]) -> tuple[bytes, bytes] | None:
    """The next record, or None where there is no whole one."""
    head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    kind, length, checksum = HEADER.unpack(head)
    # A damaged length may be huge: read no more than the file has.
    if kind not in (PAYLOAD, SEVERAL, COMMIT) or file.tell() + length > os.fstat(file.fileno()).st_size:
        return None
    payload = file.read(length)
    return (kind, payload) if crc(payload) == checksum else None


def _position(payload: bytes) -> Position | None:
    try:
        sentences, digest = json.loads(payload)
    except (ValueError, TypeError, RecursionError):
        return None
    return Position(sentences, digest) if isinstance(sentences, int) and isinstance(digest, str) else None


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FormatError(f"{path}: damaged, expected the settings of an unfinished run; start again with --restart")
    return found


def _compare(earlier: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    changed = [key for key in sorted({*earlier, *now}) if earlier.get(key) != now.get(key)]
    if changed:
        said = "; ".join(f"{key}: {earlier.get(key)!r} then, {now.get(key)!r} now" for key in changed)
        raise InputError(f"{folder} holds an unfinished run with other settings ({said}); {RESTART}")
