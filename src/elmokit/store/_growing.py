"""Parquet and HDF5 files that grow in place: every vector is written once, and a killed run goes on where it was.

The draft holds whole row groups, or vectors one after another. After each chunk of the input the draft is brought to
the disk, and then the log gets a short entry: how long the draft is, its CRC-32, and what the end of the file will have
to say of it. On resuming, the draft is compared with the checksums and cut after the last chunk that is whole. The end
of the file is written when all chunks are there.
"""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.encoders.results import Block
from elmokit.errors import InputError
from elmokit.formats.resumable import Chunk, Log, Position, Stage, disk_errors, read_stages
from elmokit.native.checksums import crc32
from elmokit.store import hdf5
from elmokit.store._draft import Draft
from elmokit.store._finish import KEY, Target
from elmokit.store._handed import InOrder
from elmokit.store._hdf5_file import FRONT, Hdf5Lines
from elmokit.store._lines import SentenceLines
from elmokit.store._parquet import ParquetGroups
from elmokit.text.packed import Packed

MARK = b"\xfe\xff\xff\xff"  # in front of an entry; not how a sentence with its vectors begins
DRAFT = "draft"
GROWING = (".parquet", ".h5", ".hdf5")
BLOCKS_AHEAD = 6  # blocks of vectors that wait for the disk at most
READ = 1 << 22  # bytes at a time


def can_grow(target: Target, log: Log) -> bool:
    """Whether the file is made in this way: not where its order is not that of the input, or another way has begun."""
    if target.suffix not in GROWING or target.sentence_keys:
        return False
    if not log.done.sentences:
        return True
    with closing(log.payloads()) as payloads:
        return bytes(next(payloads, b"")[: len(MARK)]) == MARK


def recover(log: Log, front: int) -> list[dict[str, Any]]:
    """The entries of the chunks that the draft really holds; the log forgets all others."""
    found, last = whole_entries(log.stages(), log.folder / DRAFT, front)
    if (last.position if last else Position()) != log.done:
        log.cut(*((last.position, last.end) if last else (Position(), 0)))
    return found


def whole_entries(stages: Iterable[Stage], draft: Path, front: int) -> tuple[list[dict[str, Any]], Stage | None]:
    """The entries of a log up to the last one that the draft is as it says, and that one's stage."""
    found: list[dict[str, Any]] = []
    last, at, crc = None, front, 0
    if not draft.exists():
        return found, last
    with draft.open("rb") as file:
        file.seek(at)
        for stage in stages:
            entry = json.loads(b"".join(stage.payloads)[len(MARK) :])
            while at < entry["end"] and (data := file.read(min(entry["end"] - at, READ))):
                crc = crc32(data, crc)
                at += len(data)
            if (at, crc) != (entry["end"], entry["crc"]):
                break
            last = stage
            found.append(entry)
    return found, last


def check_growing(folder: Path) -> str | None:
    """How much of an unfinished run is as it was written, in words; None where its vectors are in its log."""
    first = next(iter(read_stages(folder)), None)
    if first is None or not b"".join(first.payloads).startswith(MARK):
        return None
    found, last = whole_entries(read_stages(folder), folder / DRAFT, front_of(folder.with_suffix("").suffix.lower()))
    rest = sum(1 for _ in read_stages(folder)) - len(found)
    after = f"; {rest:,} chunks after it are damaged: the same command makes them again"
    return f"as it was written up to sentence {last.position.sentences if last else 0:,}" + (after if rest else "")


def front_of(suffix: str) -> int:
    return 0 if suffix == ".parquet" else FRONT


class GrowingFile:
    """The draft of a file and what its end will say."""

    def __init__(self, log: Log, target: Target, entries: list[dict[str, Any]]) -> None:
        self.log, self.target, self.line = log, target, log.done.sentences
        last = entries[-1] if entries else {}
        front = front_of(target.suffix)
        with disk_errors(log.folder):
            self.draft = Draft(log.folder / DRAFT, front=front, end=last.get("end"), crc=last.get("crc", 0))
            self.lines = SentenceLines(log.folder / "lines")
        self.told = 0  # entries of `groups` or `lengths` that the log has
        if target.suffix == ".parquet":
            self.parquet = ParquetGroups(self.draft, axes=target.axes, half=target.half)
            self.parquet.file.groups = [b64decode(group) for entry in entries for group in entry["groups"]]
            self.parquet.file.rows = last.get("rows", 0)
            self.parquet.file.sealable = last.get("sealable", True)
            self.told = len(self.parquet.file.groups)
        else:
            self.hdf5 = Hdf5Lines(self.draft, axes=target.axes, itemsize=2 if target.half else 4)
            self.hdf5.lengths = [np.frombuffer(b64decode(entry["lengths"]), "<i4") for entry in entries]
            self.told = len(self.hdf5.lengths)

    def close(self) -> None:
        self.draft.close()
        self.lines.close()

    def passed(self, sentences: Packed) -> None:
        """Sentences whose vectors are there already."""
        with disk_errors(self.log.folder):
            self.lines.add(sentences.lines)

    def add(self, block: Block) -> None:
        sentences = Packed.of(block.sentences)
        with disk_errors(self.log.folder):
            self.lines.add(sentences.lines)
            if self.target.suffix == ".parquet":
                self.parquet.add(sentences, block.vectors, np.arange(self.line, self.line + len(sentences)))
            else:
                self.hdf5.add(block.vectors, sentences.lengths)
        self.line += len(sentences)

    def entry(self) -> bytes:
        """What the log is to hold when all up to here is on the disk."""
        made: dict[str, Any] = {}
        if self.target.suffix == ".parquet":
            with disk_errors(self.log.folder):
                self.parquet.flush()
            file = self.parquet.file
            groups = [b64encode(group).decode() for group in file.groups[self.told :]]
            made = {"groups": groups, "rows": file.rows, "sealable": file.sealable}
            self.told = len(file.groups)
        else:
            lengths = np.concatenate([np.zeros(0, np.int32), *self.hdf5.lengths[self.told :]])
            made = {"lengths": b64encode(lengths.astype("<i4").tobytes()).decode()}
            self.told = len(self.hdf5.lengths)
        return MARK + json.dumps({"end": self.draft.at, "crc": self.draft.crc, **made}).encode()

    def commit(self, entry: bytes, chunk: Chunk) -> None:
        """Brings the draft to the disk, then says so in the log."""
        with disk_errors(self.log.folder):
            os.fsync(self.draft.file.fileno())
        self.log.append_several(len(chunk.sentences), entry)
        self.log.commit(chunk.end)

    def finish(self, record: str) -> int:
        """Writes the end of the file; how many sentences also stand on an earlier line."""
        duplicates = self.lines.duplicates
        if self.target.suffix == ".parquet":
            self.parquet.finish({KEY: record})
            return duplicates
        size = 0 if self.target.forget else self.lines.json_size()
        if size >= 1 << 32:
            told = f"{self.log.folder}: the index of all sentences takes {size:,} bytes, more than HDF5 can hold"
            raise InputError(f"{told}; give the same command with --forget-sentences (forget_sentences=True)")
        index = None if self.target.forget else (hdf5.INDEX, size, self.lines.json_pieces())
        self.hdf5.finish((KEY, record), index, most=hdf5.LARGEST_STRING)
        return duplicates

    @property
    def path(self) -> Path:
        return self.draft.path


class GrowingWriter(InOrder):
    """Blocks and commits to a file, by a thread of its own; another one waits for the disk."""

    def __init__(self, file: GrowingFile, committed: Callable[[Chunk], None]) -> None:
        self._thread, self._syncing = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        super().__init__(committed, self._thread, self._syncing)
        self.file, self._failed = file, False

    def passed(self, chunk: Chunk) -> None:
        self.file.passed(Packed.of(chunk.sentences))

    def append(self, block: Block) -> None:
        self._settle(BLOCKS_AHEAD)
        self._hand(self._thread.submit(self._add, block))

    def commit(self, chunk: Chunk) -> None:
        entry = self._thread.submit(self._entry)
        self._hand(self._syncing.submit(self._commit, entry, chunk), chunk)

    def _add(self, block: Block) -> None:
        if not self._failed:  # nothing may follow what is not whole
            try:
                self.file.add(block)
            except BaseException:
                self._failed = True
                raise

    def _entry(self) -> bytes:
        if self._failed:
            raise InputError(f"{self.file.path}: cannot be written")  # the error itself comes before this one
        return self.file.entry()

    def _commit(self, entry: "Future[bytes]", chunk: Chunk) -> None:
        self.file.commit(entry.result(), chunk)
