"""A Parquet file written by hand: vectors go into it as they lie in memory.

Arrow writes lists number by number, which takes ten times as long as a copy. But lists that all have one length, and
hold no nulls, need no look at their numbers. A column chunk here is a few data pages (version 1), without a dictionary;
other columns are compressed by Snappy. What stands where: https://parquet.apache.org/docs/file-format.
"""

import base64
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.store._draft import Draft

MAGIC = b"PAR1"
PAGE_BYTES = 4 << 20  # of vectors
LONGEST_STATISTIC = 64  # bytes; longer smallest and largest tokens are left out

INT32, INT64, FLOAT, BYTE_ARRAY, FIXED = 1, 2, 4, 6, 7  # physical types
OPTIONAL, REPEATED = 1, 2
PLAIN, RLE = 0, 3
NOT_PACKED, SNAPPY = 0, 1
UTF8, LIST = 0, 3  # converted types

# Thrift's types
I32, I64, BINARY, LISTED, STRUCT = 5, 6, 8, 9, 12
Field = tuple[int, int, Any]  # number, type, value; fields without a value are left out


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the file describes it."""

    path: tuple[str, ...]
    kind: int  # its physical type
    width: int = 0  # numbers of a vector; 0: a plain value


@dataclass(frozen=True, slots=True)
class TokenPage:
    """The tokens of a row group."""

    data: bytes  # each as its length in four bytes, then itself
    low: bytes  # the smallest and the largest
    high: bytes


class ParquetFile:
    """Row groups one after another, then the footer."""

    def __init__(
        self, draft: Draft, pyarrow: Any, names: Sequence[str], *, width: int, half: bool, seal: re.Pattern[bytes]
    ) -> None:
        """`seal` is what must not stand in a token if the file is to get a checksum."""
        self.draft, self.pyarrow, self.half, self.width = draft, pyarrow, half, width
        self.seal, self.sealable = seal, True
        self.plain = [Column(("sentence",), INT64), Column(("position",), INT32), Column(("token",), BYTE_ARRAY)]
        self.vectors = [Column((name, "list", "element"), FIXED if half else FLOAT, width) for name in names]
        self.groups: list[bytes] = []  # as the footer holds them
        self.rows = 0
        if not draft.at:
            draft.write(MAGIC)

    def write_group(
        self,
        sentences: NDArray[np.int64],
        positions: NDArray[np.int32],
        tokens: TokenPage,
        vectors: Sequence[Sequence[NDArray[Any]]],
    ) -> None:
        """One row group. Each of `vectors` is a column in pieces (n, D)."""
        n = len(sentences)
        levels = _with_length(_run(n, 1))
        payloads = [sentences.astype("<i8").tobytes(), positions.astype("<i4").tobytes(), tokens.data]
        ranges = [_range(sentences, "<i8"), _range(positions, "<i4"), _short(tokens.low, tokens.high)]
        chunks = []
        for column, payload, limits in zip(self.plain, payloads, ranges, strict=True):
            start, page = self.draft.at, levels + payload
            packed = self.pyarrow.compress(page, codec="snappy", asbytes=True)
            self.draft.write(_page(n, len(page), len(packed)))
            size = self.draft.at - start + len(page)
            self.draft.write(packed)
            if column.kind == BYTE_ARRAY:
                self.sealable = self.sealable and self.seal.search(packed) is None
            chunks.append(self._chunk(column, n, start, size, SNAPPY, limits))
        for column, pieces in zip(self.vectors, vectors, strict=True):
            start = self.draft.at
            for piece in pieces:
                self._write_vectors(piece)
            chunks.append(self._chunk(column, n * self.width, start, self.draft.at - start, NOT_PACKED, None))
        total = sum({k: v for k, _, v in chunk[1][2]}[6] for chunk in chunks)
        self.groups.append(_struct([(1, LISTED, (STRUCT, chunks)), (2, I64, total), (3, I64, n)]))
        self.rows += n

    def _write_vectors(self, piece: NDArray[Any]) -> None:
        rows = max(PAGE_BYTES // max(piece.itemsize * self.width, 1), 1)
        for at in range(0, len(piece), rows):
            part = np.ascontiguousarray(piece[at : at + rows], dtype="<f2" if self.half else "<f4")
            row = _run(1, 0) + (_run(self.width - 1, 1) if self.width > 1 else b"")  # a vector's first number, the rest
            levels = _with_length(row * len(part)) + _with_length(_run(part.size, 3))
            size = len(levels) + part.nbytes
            self.draft.write(_page(part.size, size, size) + levels)
            self.draft.write(part)

    def _chunk(
        self, column: Column, values: int, start: int, size: int, codec: int, limits: tuple[bytes, bytes] | None
    ) -> list[Field]:
        meta: list[Field] = [
            (1, I32, column.kind),
            (2, LISTED, (I32, [PLAIN, RLE])),
            (3, LISTED, (BINARY, [name.encode() for name in column.path])),
            (4, I32, codec),
            (5, I64, values),
            (6, I64, size),
            (7, I64, self.draft.at - start),
            (9, I64, start),
        ]
        if limits is not None:
            meta.append((12, STRUCT, [(3, I64, 0), (5, BINARY, limits[1]), (6, BINARY, limits[0])]))
        return [(2, I64, start), (3, STRUCT, meta)]

    def finish(self, metadata: Mapping[str, str]) -> bool:
        """Writes the footer; whether there is one place for a checksum."""
        pa = self.pyarrow
        number = pa.float16() if self.half else pa.float32()
        fields = {"sentence": pa.int64(), "position": pa.int32(), "token": pa.string()}
        fields |= {column.path[0]: pa.list_(number, self.width) for column in self.vectors}
        schema = pa.schema(list(fields.items()), metadata=dict(metadata))
        arrow = base64.b64encode(schema.serialize().to_pybytes())  # by which Arrow knows that lists have one length
        pairs = [*((key.encode(), value.encode()) for key, value in metadata.items()), (b"ARROW:schema", arrow)]
        leaves = len(self.plain) + len(self.vectors)
        footer = _struct(
            [
                (1, I32, 2),
                (2, LISTED, (STRUCT, self._schema())),
                (3, I64, self.rows),
                (4, LISTED, (STRUCT, self.groups)),
                (5, LISTED, (STRUCT, [[(1, BINARY, key), (2, BINARY, value)] for key, value in pairs])),
                (6, BINARY, b"elmokit"),
                (7, LISTED, (STRUCT, [[(1, STRUCT, [])]] * leaves)),  # values are ordered as their types say
            ]
        )
        self.draft.write(footer + struct.pack("<I", len(footer)) + MAGIC)
        return self.sealable and len(self.seal.findall(footer)) == 1

    def _schema(self) -> list[list[Field]]:
        tops = len(self.plain) + len(self.vectors)
        found: list[list[Field]] = [[(4, BINARY, b"schema"), (5, I32, tops)]]
        for column in self.plain:
            own: list[Field] = [(1, I32, column.kind), (3, I32, OPTIONAL), (4, BINARY, column.path[0].encode())]
            if column.kind == BYTE_ARRAY:
                own += [(6, I32, UTF8), (10, STRUCT, [(1, STRUCT, [])])]
            found.append(own)
        for column in self.vectors:
            name = column.path[0].encode()
            listed: list[Field] = [(3, I32, OPTIONAL), (4, BINARY, name), (5, I32, 1), (6, I32, LIST)]
            found.append([*listed, (10, STRUCT, [(3, STRUCT, [])])])
            found.append([(3, I32, REPEATED), (4, BINARY, b"list"), (5, I32, 1)])
            kind: list[Field] = [(1, I32, column.kind), (2, I32, 2)] if self.half else [(1, I32, column.kind)]
            half: list[Field] = [(10, STRUCT, [(15, STRUCT, [])])] if self.half else []
            found.append([*kind, (3, I32, OPTIONAL), (4, BINARY, b"element"), *half])
        return found


def _page(values: int, size: int, packed: int) -> bytes:
    """The header of a data page."""
    about: list[Field] = [(1, I32, values), (2, I32, PLAIN), (3, I32, RLE), (4, I32, RLE)]
    return _struct([(1, I32, 0), (2, I32, size), (3, I32, packed), (5, STRUCT, about)])


def _run(count: int, level: int) -> bytes:
    """A level that holds for so many values."""
    return _varint(count << 1) + bytes([level])


def _with_length(levels: bytes) -> bytes:
    return struct.pack("<I", len(levels)) + levels


def _range(values: NDArray[Any], kind: str) -> tuple[bytes, bytes] | None:
    if not len(values):
        return None
    return values.min().astype(kind).tobytes(), values.max().astype(kind).tobytes()


def _short(low: bytes, high: bytes) -> tuple[bytes, bytes] | None:
    return (low, high) if max(len(low), len(high)) <= LONGEST_STATISTIC else None


def _struct(fields: Sequence[Field]) -> bytes:
    """Thrift's compact protocol."""
    made, before = bytearray(), 0
    for number, kind, value in fields:
        step = number - before
        made += bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + _zigzag(number)
        made += _value(kind, value)
        before = number
    return bytes(made) + b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return value if isinstance(value, bytes) else _struct(value)
    inner, items = value
    head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
    return head + b"".join(_value(inner, item) for item in items)


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else (-number << 1) - 1)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])
