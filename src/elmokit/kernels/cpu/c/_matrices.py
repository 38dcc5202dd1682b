"""Matrices as products.h wants them: int8 and int16 in a layout of their own, float32 in place.

bfloat16 goes as int16: a CPU without bfloat16 instructions multiplies whole numbers of that size twice as fast as
floats. A row of activations has 4,095 steps up to its largest number; at a sixteenth of that, as many as bfloat16 has.
"""

import ctypes
from collections.abc import Iterator

import torch
from torch import Tensor

from elmokit.kernels.cpu.int8 import Int8Matrix

PIECE = 16  # blocks that are laid out at a time
ROWS = 1024  # that become whole numbers at a time
INT8, FLOAT32, INT16 = range(3)
UNITS = 4095  # the largest int16 of a row of activations


class CMatrix(ctypes.Structure):
    """`Matrix` of products.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("blocks", ctypes.c_int32),
        ("steps", ctypes.c_int32),
        ("shift", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("gates", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("start", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("zeros", ctypes.c_void_p),
    )


class Columns:
    """The order of a matrix's outputs: blocks of four vectors, filled up. Gates stand together, cell by cell."""

    def __init__(self, outputs: int, *, lanes: int, gates: bool = False) -> None:
        groups = 4 if gates else 1
        size, step = outputs // groups, 4 * lanes // groups
        place = torch.arange(-(-size // step) * step).view(-1, 1, step)  # (blocks, 1, step)
        source = torch.arange(groups).view(1, groups, 1) * size + place  # (blocks, groups, step)
        self.source = torch.where(place < size, source, -1).flatten()  # (blocks * 4 * lanes,), -1: filled up
        self.lanes, self.gates, self.blocks = lanes, gates, len(self.source) // (4 * lanes)

    def order(self, rows: Tensor, first: int = 0, end: int | None = None) -> Tensor:
        """Rows (outputs, ...) in this order, or some of that, zeros where it is filled up."""
        source = self.source[first:end]
        ordered = rows.index_select(0, source.clamp_min(0))
        ordered[source < 0] = 0
        return ordered


class PackedMatrix:
    """A matrix as the library wants it, and what its structure points to."""

    def __init__(self, matrix: Int8Matrix | Tensor, columns: Columns, *, most: int, positive: bool = False) -> None:
        self.held: tuple[Tensor, ...] = ()
        if isinstance(matrix, Int8Matrix):
            self.structure = self._int8(matrix, columns, most, positive)
        else:
            make = self._int16 if matrix.dtype == torch.bfloat16 else self._float32
            self.structure = make(matrix, columns)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)

    def _int8(self, matrix: Int8Matrix, columns: Columns, most: int, positive: bool) -> CMatrix:
        steps, shift = (most, 0) if positive else (most // 2, most // 2 + 1)
        values = _laid_out(matrix.values, columns, 4)
        start = -shift * columns.order(_sums(matrix.values))
        self.held = values, start, columns.order(matrix.scale.float()) / steps
        where = (part.data_ptr() for part in self.held)
        return CMatrix(INT8, 4 * values.shape[1], columns.blocks, steps, shift, 0, 0, *where, None)

    def _int16(self, matrix: Tensor, columns: Columns) -> CMatrix:
        whole, scale = sixteen_bits(matrix)
        values = _laid_out(whole, columns, 2)
        self.held = values, columns.order(scale) / UNITS
        where = values.data_ptr(), None, self.held[1].data_ptr(), None
        return CMatrix(INT16, 2 * values.shape[1], columns.blocks, UNITS, 0, 0, 0, *where)

    def _float32(self, matrix: Tensor, columns: Columns) -> CMatrix:
        """Copied only if its rows are no whole vectors."""
        N, K = matrix.shape
        filled = _filled(K, columns.lanes)
        values = matrix.contiguous() if filled == K else torch.nn.functional.pad(matrix, (0, filled - K))
        zeros = torch.zeros(filled, dtype=matrix.dtype)
        self.held = values, zeros
        outputs = N // 4 if columns.gates else N
        where = values.data_ptr(), None, None, zeros.data_ptr()
        return CMatrix(FLOAT32, filled, columns.blocks, 0, 0, outputs, columns.gates, *where)


def sixteen_bits(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (N, K) as int16 and scales (N,): no sum of a row's products with numbers up to `UNITS` leaves 31 bits."""
    N, K = matrix.shape
    room = 0.999 * ((2**31 - 1) / UNITS - K / 2)  # what a row may sum up to, behind what rounding adds
    whole, scale = torch.empty(N, K, dtype=torch.int16), torch.empty(N, dtype=torch.float32)
    for some in _pieces(N, ROWS):
        rows = matrix[some].float()
        size = rows.abs()
        needed = torch.maximum(size.sum(dim=1) / room, size.amax(dim=1) / 32767)  # (rows,)
        scale[some] = torch.where(needed > 0, needed, 1.0)
        whole[some] = (rows / scale[some, None]).round_()
    return whole, scale


def _laid_out(values: Tensor, columns: Columns, together: int) -> Tensor:
    """Rows (N, K) as blocks (blocks, K / together, 4, W, together), K filled up."""
    size, lanes, K = 4 * columns.lanes, columns.lanes, _filled(values.shape[1], columns.lanes)
    out = torch.empty(columns.blocks, K // together, 4, lanes, together, dtype=values.dtype)
    for some in _pieces(columns.blocks, PIECE):  # so that no other copy of the matrix is made
        rows = columns.order(values, some.start * size, some.stop * size)  # (blocks * 4 * W, K)
        whole = torch.nn.functional.pad(rows, (0, K - rows.shape[1]))
        out[some] = whole.view(-1, 4, lanes, K // together, together).permute(0, 3, 1, 2, 4)
    return out


def _sums(values: Tensor) -> Tensor:
    """Of rows (N, K) of int8; torch would make a wide copy of all of them. (N,)"""
    return torch.cat([values[some].sum(dim=1, dtype=torch.int32) for some in _pieces(len(values), ROWS)])


def _pieces(length: int, size: int) -> Iterator[slice]:
    return (slice(first, first + size) for first in range(0, length, size))


def _filled(size: int, lanes: int) -> int:
    return -(-size // lanes) * lanes
