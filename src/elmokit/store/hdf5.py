"""HDF5 as AllenNLP 0.6 to 0.9 wrote it: one dataset per line (float32, or float16), and a JSON index of the sentences.

Keys are line numbers from 0, as strings. `sentence_to_index` (1,) is a JSON object from the sentence to its key, the
last of duplicates winning. Readers get that object as a whole, so tens of millions of sentences are better left out
of it (`forget_sentences`); HDF5 itself takes about 400 bytes and 50 microseconds per dataset.
"""

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from elmokit.store._records import RecordBlock, SentenceIndex
from elmokit.store._seal import not_whole

INDEX = "sentence_to_index"
ROOM = 64  # bytes by which a record may grow
FRONT = 1 << 20  # bytes at the beginning of a file, where its attribute stands
LARGEST_STRING = 1 << 20  # bytes of JSON written as the older tools did; a larger one goes to disk piece by piece
# HDF5 reads '/' as a path, '.' as the group itself, and ends names at NUL.
REPLACED = str.maketrans({"/": "\u2215", "\x00": "\u2400"})


def sentence_key(text: str) -> str:
    """A sentence as an HDF5 name: slashes become U+2215, NUL U+2400, and a lone dot U+2024."""
    clean = text.encode("utf-8", "replace").decode().translate(REPLACED)
    return "\u2024" if clean == "." else clean


class Hdf5File:
    """Datasets one after another, then the index of sentences."""

    def __init__(
        self, path: Path, *, attribute: tuple[str, str], sentence_keys: bool = False, forget: bool = False
    ) -> None:
        """`sentence_keys`: keyed by the sentence, duplicates once, empty ones not at all, and no index.

        `attribute` is a name and a text that `finish` puts another one over, at most ROOM longer: HDF5 may never end
        reading a damaged file whose attributes were added late.
        """
        self.path, self.sentence_keys, self.forget = path, sentence_keys, forget
        self.line = 0
        self.draft = _Draft(path, "w+b")
        self.file = h5py.File(self.draft, "w")
        self.text = attribute[1] + " " * ROOM
        self.file.attrs[attribute[0]] = self.text
        self.plain = path.open("r+b")
        self.datasets = _Datasets(self.file)

    def add(self, block: RecordBlock, index: SentenceIndex) -> None:
        """With `sentence_keys` the index holds all sentences already.

        HDF5 gives each dataset a place, and neighbours go there in one piece, past HDF5: three times as fast.
        """
        L, (_, D) = math.prod(block.layers), block.vectors.shape
        vectors = np.ascontiguousarray(block.vectors, dtype="<f2" if block.vectors.itemsize == 2 else "<f4")
        row = D * vectors.itemsize
        pieces: list[list[int]] = []  # place in the file, rows from and to
        end = 0
        for text, tokens in zip(block.texts, block.tokens, strict=True):
            start, end = end, end + L * len(tokens)
            key = self._key(text, index)
            self.line += 1
            if key is None:
                continue
            place = self.datasets.create(key, (*block.layers, len(tokens), D), vectors.itemsize)
            if place is None:
                continue
            if pieces and pieces[-1][2] == start and pieces[-1][0] + (start - pieces[-1][1]) * row == place:
                pieces[-1][2] = end
            else:
                pieces.append([place, start, end])
        self.draft.check()
        for place, first, last in pieces:
            self.plain.seek(place)
            self.plain.write(vectors[first:last].data)

    def _key(self, text: str, index: SentenceIndex) -> str | None:
        if not self.sentence_keys:
            return str(self.line)
        return key if (key := sentence_key(text)) and index.last_line(key) == self.line else None

    def finish(self, text: str, index: SentenceIndex) -> None:
        offset = None
        if not self.sentence_keys and not self.forget:
            size = sum(len(piece) for piece in _json_pieces(index))
            if size <= LARGEST_STRING:
                self.file.create_dataset(INDEX, (1,), dtype=h5py.string_dtype())[0] = b"".join(_json_pieces(index))
            else:
                offset = self.datasets.reserve(INDEX, size)
        self.close()
        with self.path.open("r+b") as plain:
            if offset is not None:  # straight to where HDF5 will find it: nobody has to hold it all
                plain.seek(offset)
                plain.writelines(_json_pieces(index))
            begin, stored = self.text.encode(), text.encode()
            plain.seek(0)
            plain.seek(plain.read(FRONT).index(begin))
            plain.write(stored + b" " * (len(begin) - len(stored)))

    def close(self) -> None:
        try:
            self.plain.close()
        finally:
            self.file.close()
            self.draft.__exit__()


def read_attribute(path: Path, name: str) -> bytes | None:
    """A text among the attributes of a file; None where there is none."""
    try:
        with h5py.File(path, "r") as file:
            value = file.attrs.get(name)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError) as error:  # what h5py raises for damaged files
        raise not_whole(path, error) from error
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else None


def holds_sentences(path: Path) -> bool:
    """Whether this is a file in that layout, with line numbers as keys."""
    try:
        with h5py.File(path, "r") as file:
            return isinstance(file.get("0"), h5py.Dataset)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError):
        return False


class _Draft(io.FileIO):
    """A file that remembers that it could not be written: HDF5 crashes the process where it cannot close a file."""

    failed: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        try:
            while rest and self.failed is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.failed = error
        return memoryview(data).nbytes

    def readinto(self, buffer: Any) -> int:
        found = super().readinto(buffer) or 0
        memoryview(buffer).cast("B")[found:] = bytes(memoryview(buffer).nbytes - found)  # what could not be written
        return memoryview(buffer).nbytes

    def check(self) -> None:
        if self.failed is not None:
            raise self.failed

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[arg-type]
        self.check()


class _Datasets:
    """Many small datasets: what h5py's own call works out anew each time is made once."""

    def __init__(self, file: h5py.File) -> None:
        self.group = file.id
        self.creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        self.creation.set_obj_track_times(False)  # the same vectors make the same file
        self.creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        self.creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        self.link = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        self.link.set_char_encoding(h5py.h5t.CSET_UTF8)
        self.kinds = {2: h5py.h5t.IEEE_F16LE, 4: h5py.h5t.IEEE_F32LE}

    def create(self, key: str, shape: tuple[int, ...], itemsize: int) -> int | None:
        """Where the numbers of a new dataset belong in the file; None where it has none."""
        space = h5py.h5s.create_simple(shape)
        place = h5py.h5d.create(self.group, key.encode(), self.kinds[itemsize], space, self.creation, self.link)
        return int(place.get_offset()) if math.prod(shape) else None

    def reserve(self, key: str, size: int) -> int:
        """Room in the file for one string of that many bytes; where it begins."""
        kind = h5py.h5t.py_create(h5py.string_dtype("utf-8", size), logical=True)
        space = h5py.h5s.create_simple((1,))
        dataset = h5py.h5d.create(self.group, key.encode(), kind, space, self.creation, self.link)
        return int(dataset.get_offset())


def _json_pieces(index: SentenceIndex) -> Iterator[bytes]:
    """The index as JSON, in pieces; ASCII, so that its bytes are its characters."""
    before = b"{"
    for text, line in index:
        yield before + f'{json.dumps(text)}: "{line}"'.encode()
        before = b", "
    yield b"}" if before == b", " else b"{}"
