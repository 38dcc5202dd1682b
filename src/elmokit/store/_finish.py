"""From the log of a run to its file: afterwards, or by a process of its own that follows the log as it grows.

The other process reads what the log has from the disk's cache, so vectors are not sent to it, and Python's lock is not
shared with it. If it fails, or is killed, the file is made afterwards as without it.
"""

import contextlib
import mmap
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import numpy as np

from elmokit.formats.ahead import start_worker
from elmokit.formats.resumable import COUNT, HEADER, PAYLOAD, SEVERAL
from elmokit.store._arrays import NpzFile, write_safetensors
from elmokit.store._draft import Draft
from elmokit.store._parquet import ParquetGroups
from elmokit.store._records import Record, RecordBlock, SentenceIndex
from elmokit.store._seal import seal
from elmokit.store.hdf5 import Hdf5File, sentence_key

KEY = "elmokit"  # of the record of how vectors were made
FOLLOWED = (".parquet", ".h5", ".hdf5", ".npz")  # safetensors has sizes at its front


@dataclass(frozen=True, slots=True)
class Target:
    """What file is to be made."""

    suffix: str
    axes: tuple[int, ...]  # of a token's vectors: (D,) or (L, D)
    record: str  # how the vectors are made, as far as it is known when the work begins
    half: bool = False  # float16
    layers: str = ""
    sentence_keys: bool = False
    forget: bool = False

    @property
    def can_follow(self) -> bool:
        """Whether the file can be written before all sentences are known."""
        return self.suffix in FOLLOWED and not self.sentence_keys


class FileMaker:
    """Blocks of the log to a file that grows with them."""

    def __init__(self, path: Path, target: Target, index: SentenceIndex) -> None:
        self.path, self.target, self.index, self.line = path, target, index, 0
        self.file: ParquetGroups | NpzFile | Hdf5File
        match target.suffix:
            case ".parquet":
                self.file = ParquetGroups(Draft(path), axes=target.axes, half=target.half)
            case ".npz":
                self.file = NpzFile(path)
            case _:
                self.file = Hdf5File(
                    path,
                    attribute=(KEY, target.record),
                    sentence_keys=target.sentence_keys,
                    forget=target.forget,
                )

    def add(self, block: RecordBlock) -> None:
        match self.file:
            case ParquetGroups():
                numbers = np.arange(self.line, self.line + len(block))
                self.file.add(block.packed, block.vectors, numbers)
            case NpzFile():
                self.file.add(block)
            case Hdf5File():
                self.file.add(block, self.index)
        self.line += len(block)

    def finish(self, record: str) -> None:
        """`record` is how the vectors were made."""
        match self.file:
            case ParquetGroups():
                self.file.finish({KEY: record})  # and its checksum
                return
            case NpzFile():
                self.file.finish(record)
            case Hdf5File():
                self.file.finish(record, self.index)
        seal(self.path)

    def close(self) -> None:
        self.file.close()


def make_file(
    path: Path, target: Target, index_path: Path, blocks: Callable[[], Iterable[RecordBlock]], record: str
) -> int:
    """The whole file; returns how many sentences also stand on an earlier line."""
    with contextlib.closing(SentenceIndex(index_path)) as index:
        if target.suffix == ".safetensors":
            for block in blocks():
                index.add_all(block.texts, index.added)

            def records() -> Iterator[Record]:
                return (record for block in blocks() for record in block)

            metadata = {"layers": target.layers, KEY: record}
            write_safetensors(path, records, axes=target.axes, metadata=metadata, half=target.half)
            seal(path)
            return index.duplicates
        if target.sentence_keys:
            for block in blocks():
                index.add_all(list(map(sentence_key, block.texts)), index.added)
        with contextlib.closing(FileMaker(path, target, index)) as maker:
            for block in blocks():
                if not target.sentence_keys:
                    index.add_all(block.texts, index.added)
                maker.add(block)
            maker.finish(record)
        return index.duplicates


class Follower:
    """A process that makes the file while the log grows."""

    def __init__(self, log: Path, draft: Path, target: Target) -> None:
        self.draft = draft
        spawn = get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_follow, args=(theirs, log, draft, target), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._connection.close()

    def tell(self, end: int) -> None:
        """The log holds whole records up to there."""
        with contextlib.suppress(OSError):  # it is gone: `finish` notices
            self._connection.send(end)

    def finish(self, record: str) -> int | None:
        """Waits for the file; how many sentences also stand on an earlier line, or None where there is no file."""
        try:
            self._connection.send(record)
            return int(self._connection.recv())
        except (OSError, EOFError):
            return None


def _follow(connection: Connection, log: Path, draft: Path, target: Target) -> None:
    start_worker()
    try:
        with contextlib.closing(SentenceIndex(log.with_name("followed.sqlite"))) as index:
            with contextlib.closing(FileMaker(draft, target, index)) as maker, log.open("rb") as file:
                at = 0
                while isinstance(told := connection.recv(), int):
                    for block in _blocks_between(file.fileno(), at, told):
                        index.add_all(block.texts, index.added)
                        maker.add(block)
                    at = told
                maker.finish(told)
            connection.send(index.duplicates)
    except (OSError, RuntimeError, sqlite3.Error, EOFError):  # a full disk: said by who makes the file afterwards
        os._exit(1)


def _blocks_between(file: int, start: int, end: int) -> Iterator[RecordBlock]:
    """What a log holds there; not compared with its checksums, since it was written a moment ago."""
    if end <= start:
        return
    before = start % mmap.ALLOCATIONGRANULARITY
    view = memoryview(mmap.mmap(file, end - start + before, access=mmap.ACCESS_READ, offset=start - before))
    at = before
    while at < len(view):
        kind, length, _ = HEADER.unpack_from(view, at)
        payload: Any = view[at + HEADER.size : at + HEADER.size + length]
        if kind == SEVERAL:
            yield RecordBlock.unpack(payload[COUNT.size :])
        elif kind == PAYLOAD:
            yield RecordBlock.unpack(payload)
        at += HEADER.size + length
