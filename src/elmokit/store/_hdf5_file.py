"""An HDF5 file written by hand: vectors first, as they lie in memory, then all that says where they are.

HDF5 itself takes 40 microseconds for a dataset, and mixes what describes the data with the data, so that a file that
was not closed is lost. Here the descriptions of all datasets are made at once at the end. They are what HDF5 writes by
default (version 0 of the superblock, version 1 of object headers, groups as symbol tables); what stands where:
https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t1.html.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.native.checksums import crc32, joined_crc32
from elmokit.store._draft import Draft
from elmokit.store._seal import BLANK, OPEN, close_seal

FRONT = 2048  # bytes before the vectors: the superblock
LEAF, INNER = 8, 32  # entries of a symbol node and of a node of the tree above it, HDF5's defaults
AT_ONCE = 1 << 16  # datasets that are described at a time
NOWHERE = (1 << 64) - 1
Ints = NDArray[np.int64]

FLOATS = {  # IEEE, least significant byte first
    4: struct.pack("<4BI2H4BI", 0x11, 0x20, 31, 0, 4, 0, 32, 23, 8, 0, 23, 127),
    2: struct.pack("<4BI2H4BI", 0x11, 0x20, 15, 0, 2, 0, 16, 10, 5, 0, 10, 15),
}
TEXT = struct.pack("<4BI4BI2H", 0x19, 1, 1, 0, 16, 0x10, 0, 0, 0, 1, 0, 8)  # UTF-8 of any length, kept in a heap
SCALAR = struct.pack("<4BI", 1, 0, 0, 0, 0)
FILL = struct.pack("<4BI", 2, 2, 2, 1, 0)


class Hdf5Lines:
    """Datasets named by their numbers from 0, and one text or none besides them."""

    def __init__(self, draft: Draft, *, axes: tuple[int, ...], itemsize: int) -> None:
        """`axes` is the shape of one token's vectors: (D,) or (L, D)."""
        self.draft, self.axes, self.itemsize = draft, axes, itemsize
        self.lengths: list[Ints] = []  # of the sentences, as they came

    def add(self, vectors: NDArray[Any], lengths: Ints) -> None:
        """`vectors` (N * L, D) as in `Block`; `lengths` are the tokens of its sentences."""
        self.draft.write(np.ascontiguousarray(vectors, dtype=f"<f{self.itemsize}"))
        self.lengths.append(lengths.astype(np.int32))

    def finish(self, attribute: tuple[str, str], text: "tuple[str, int, Iterable[bytes]] | None", *, most: int) -> None:
        """`attribute` is a name and a text; `text` a name, a size and pieces, which are a heap's up to `most` bytes."""
        draft, sealable = self.draft, True
        lengths = np.concatenate([np.zeros(0, np.int32), *self.lengths])
        self._pad()
        headers = draft.at
        sizes = self._describe(lengths)
        order = _by_name(len(lengths))
        places = headers + sizes * order  # of the headers, in the order of names
        names: Iterator[bytes] = (str(k).encode() for k in order.tolist())
        more: list[tuple[bytes, int]] = []
        if text is not None:
            name, size, pieces = text
            place, sealable = self._text(pieces, size, heap=size <= most)
            more.append((name.encode(), place))
        tree, heap = self._group(names, places, more)
        stored = attribute[1].encode()
        at = self._heap(len(stored), [stored]) + 32  # where the text begins
        root = self._header(
            (0x0011, 0, struct.pack("<2Q", tree, heap)),
            (0x000C, 0, _attribute(attribute[0].encode(), struct.pack("<IQI", len(stored), at - 32, 1))),
        )
        front = _superblock(draft.at, root, tree, heap).ljust(FRONT, b"\0")
        draft.file.seek(0)
        draft.file.write(front)
        size = draft.at - draft.front
        draft.close()
        if sealable and len(OPEN.findall(stored)) == 1:
            near = at + stored.index(BLANK.encode())
            close_seal(draft.path, joined_crc32(crc32(front), draft.crc, size), near=near)

    def _describe(self, lengths: NDArray[np.int32]) -> int:
        """The object headers of all datasets, one after another; the bytes of each."""
        rank, row = len(self.axes) + 1, self.itemsize * int(np.prod(self.axes))
        shape = [0 if k == rank - 2 else size for k, size in enumerate([*self.axes[:-1], 0, self.axes[-1]])]
        space = struct.pack(f"<4BI{rank}Q", 1, rank, 0, 0, 0, *shape)
        header = _header(
            (0x0001, 0, space),
            (0x0003, 1, FLOATS[self.itemsize]),
            (0x0005, 1, FILL),
            (0x0008, 0, struct.pack("<2B2Q", 3, 1, NOWHERE, 0)),
        )
        tokens, size = 16 + 8 + 8 + 8 * (rank - 2), len(header)  # where the number of tokens stands
        layout = size - 24 + 2  # and where the vectors are
        at = FRONT
        for first in range(0, len(lengths), AT_ONCE):
            own = lengths[first : first + AT_ONCE].astype(np.int64)
            made = np.tile(np.frombuffer(header, np.uint8), (len(own), 1))
            made[:, tokens : tokens + 8] = _bytes(own)
            ends = at + row * np.cumsum(own)
            starts = np.where(own > 0, ends - row * own, -1)  # nowhere, where there are none
            made[:, layout : layout + 8] = _bytes(starts)
            made[:, layout + 8 : layout + 16] = _bytes(row * own)
            at = int(ends[-1])
            self.draft.write(made)
        return size

    def _text(self, pieces: Iterable[bytes], size: int, *, heap: bool) -> tuple[int, bool]:
        """A dataset of one text: where its header is, and whether no checksum's place stands in it."""
        sealable, kept = True, b""

        def looked_at() -> Iterator[bytes]:
            nonlocal sealable, kept
            for piece in pieces:
                kept = kept[-64:] + piece
                sealable = sealable and OPEN.search(kept) is None
                yield piece

        if heap:
            stored = struct.pack("<IQI", size, self._heap(size, looked_at()), 1)
            place = self.draft.at
            self.draft.write(stored)
            kind, taken = TEXT, len(stored)
        else:
            place = self.draft.at
            for piece in looked_at():
                self.draft.write(piece)
            kind, taken = struct.pack("<4BI", 0x13, 0x11, 0, 0, size), size  # UTF-8 of that length
        self._pad()
        space = struct.pack("<4BIQ", 1, 1, 0, 0, 0, 1)
        layout = struct.pack("<2B2Q", 3, 1, place, taken)
        return self._header((0x0001, 0, space), (0x0003, 1, kind), (0x0005, 1, FILL), (0x0008, 0, layout)), sealable

    def _group(self, names: Iterator[bytes], places: Ints, more: Sequence[tuple[bytes, int]]) -> tuple[int, int]:
        """A symbol table of names, which are sorted, and the headers' places: where its tree and its heap are."""
        draft, count = self.draft, len(places) + len(more)
        # The names, each from a multiple of 8 bytes on, the first of them empty.
        table = np.zeros(count, np.int64)  # where each begins
        texts = bytearray(8)
        for k, name in enumerate(chain(names, (name for name, _ in more))):
            table[k] = len(texts)
            texts += name + b"\0" * (8 - len(name) % 8)
        heap = draft.at
        draft.write(struct.pack("<4sI3Q", b"HEAP", 0, len(texts), 1, heap + 32))
        draft.write(texts)
        places = np.append(places, [place for _, place in more]).astype(np.int64)
        amount = -(-max(count, 1) // LEAF)
        nodes = draft.at + np.arange(amount) * (8 + 40 * LEAF)
        for first in range(0, amount, AT_ONCE):
            some = min(amount - first, AT_ONCE)
            made = np.zeros(some, [("head", "<u4"), ("rest", "<u2", 2), ("entries", "<i8", (LEAF, 5))])
            made["head"], made["rest"][:, 0] = int.from_bytes(b"SNOD", "little"), 1
            made["rest"][:, 1] = np.minimum(count - (first + np.arange(some)) * LEAF, LEAF)
            entries = np.zeros((some * LEAF, 5), np.int64)
            own = slice(first * LEAF, (first + some) * LEAF)
            entries[: len(table[own]), 0], entries[: len(table[own]), 1] = table[own], places[own]
            made["entries"] = entries.reshape(some, LEAF, 5)
            draft.write(made.tobytes())
        lasts = np.append(table[LEAF - 1 :: LEAF], table[-1:])[: len(nodes)] if count else np.zeros(1, np.int64)
        level = 0
        while True:  # each level of the tree over the one below; a key is the last name under the child before it
            found: list[int] = []
            here, made_nodes = draft.at, bytearray()
            size = 24 + 8 * (2 * INNER + 1)
            for first in range(0, len(nodes), INNER):
                own = slice(first, first + INNER)
                children, keys = nodes[own], [0 if first == 0 else lasts[first - 1], *lasts[own]]
                before = here + (first // INNER - 1) * size if first else NOWHERE
                after = here + (first // INNER + 1) * size if first + INNER < len(nodes) else NOWHERE
                woven = [0] * (2 * len(children) + 1)
                woven[::2], woven[1::2] = [int(key) for key in keys], children.tolist()
                node = struct.pack("<4s2BH2Q", b"TREE", 0, level, len(children) if count else 0, before, after)
                made_nodes += (node + struct.pack(f"<{len(woven)}Q", *woven)).ljust(size, b"\0")
                found.append(int(keys[-1]))
            draft.write(made_nodes)
            nodes, lasts, level = here + np.arange(len(found)) * size, np.array(found), level + 1
            if len(nodes) == 1:
                return int(nodes[0]), heap

    def _heap(self, size: int, pieces: Iterable[bytes]) -> int:
        """A global heap with one text in it: where it is."""
        place, room = self.draft.at, 32 + size + -size % 8
        whole = max(room + 16, 4096)
        self.draft.write(struct.pack("<4sIQ2HIQ", b"GCOL", 1, whole, 1, 0, 0, size))
        for piece in pieces:
            self.draft.write(piece)
        rest = whole - room
        self.draft.write(b"\0" * (-size % 8) + struct.pack("<2HIQ", 0, 0, 0, rest) + b"\0" * (rest - 16))
        return place

    def _header(self, *messages: tuple[int, int, bytes]) -> int:
        place = self.draft.at
        self.draft.write(_header(*messages))
        return place

    def _pad(self) -> None:
        self.draft.write(b"\0" * (-self.draft.at % 8))


def _header(*messages: tuple[int, int, bytes]) -> bytes:
    """An object header; a message is a type, flags and contents."""
    body = b""
    for kind, flags, data in messages:
        data += b"\0" * (-len(data) % 8)
        body += struct.pack("<2H4B", kind, len(data), flags, 0, 0, 0) + data
    return struct.pack("<2BH3I", 1, 0, len(messages), 1, len(body), 0) + body


def _attribute(name: bytes, data: bytes) -> bytes:
    sizes = struct.pack("<2B3H", 1, 0, len(name) + 1, len(TEXT), len(SCALAR))
    return sizes + name + b"\0" * (8 - len(name) % 8) + TEXT + b"\0" * (-len(TEXT) % 8) + SCALAR + data


def _superblock(end: int, root: int, tree: int, heap: int) -> bytes:
    versions = struct.pack("<8B2HI", 0, 0, 0, 0, 0, 8, 8, 0, LEAF // 2, INNER // 2, 0)
    places = struct.pack("<4Q", 0, NOWHERE, end, NOWHERE)
    return b"\x89HDF\r\n\x1a\n" + versions + places + struct.pack("<2Q2I2Q", 0, root, 1, 0, tree, heap)


def _by_name(count: int) -> Ints:
    """Numbers from 0 in the order of their names: 0, 1, 10, 11, ..., 2, 20, ..."""
    numbers = np.arange(count)
    digits = np.ones(count, np.int64)
    for power in range(1, 19):
        digits[10**power :] = power + 1
        if 10**power >= count:
            break
    most = int(digits[-1]) if count else 1
    return np.lexsort((digits, numbers * 10 ** (most - digits)))


def _bytes(numbers: Ints) -> NDArray[np.uint8]:
    """(n, 8)"""
    return np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(-1, 8)
