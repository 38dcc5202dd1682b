"""Matrices as products.h wants them: int8, int16 and bfloat16 in a layout of their own, float32 in place.

bfloat16 goes as int16 on a CPU without instructions for it, which multiplies such numbers twice as fast as floats.
A row of activations then has 4,095 steps up to its largest number; at a sixteenth of that, as many as bfloat16 has.
"""

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.native.library import c_library
from elmokit.native.numbers import ArrayMatrix, Bits, Floats, Int8Array, aligned, from_bfloat16
from elmokit.native.threads import side_by_side

PIECE = 16  # blocks that are laid out at a time
ROWS = 1024  # that become whole numbers at a time
INT8, FLOAT32, INT16, BFLOAT16 = range(4)
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
        place = np.arange(-(-size // step) * step).reshape(-1, 1, step)  # (blocks, 1, step)
        source = np.arange(groups).reshape(1, groups, 1) * size + place  # (blocks, groups, step)
        self.source = np.where(place < size, source, -1).reshape(-1)  # (blocks * 4 * lanes,), -1: filled up
        self.lanes, self.gates, self.blocks = lanes, gates, len(self.source) // (4 * lanes)

    def order(self, rows: NDArray[Any], first: int = 0, end: int | None = None) -> NDArray[Any]:
        """Rows (outputs, ...) in this order, or some of that, zeros where it is filled up."""
        source = self.source[first:end]
        ordered = rows.take(source, axis=0, mode="clip")
        ordered[source < 0] = 0
        return ordered


class PackedMatrix:
    """A matrix as the library wants it, and what its structure points to."""

    def __init__(
        self, matrix: ArrayMatrix, columns: Columns, *, most: int, halves: int = 0, positive: bool = False
    ) -> None:
        self.held: tuple[NDArray[Any], ...] = ()
        if isinstance(matrix, Int8Array):
            self.structure = self._int8(matrix, columns, most, positive)
        elif matrix.dtype == np.uint16:
            self.structure = (self._bfloat16 if halves else self._int16)(matrix, columns)
        else:
            self.structure = self._float32(matrix, columns)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)

    def _int8(self, matrix: Int8Array, columns: Columns, most: int, positive: bool) -> CMatrix:
        steps, shift = (most, 0) if positive else (most // 2, most // 2 + 1)
        sums = np.empty(columns.blocks * 4 * columns.lanes, np.int32)
        values = _laid_out(matrix.values, columns, 4, sums)
        start = np.int32(-shift) * sums
        self.held = values, start, columns.order(matrix.scale.astype(np.float32)) / np.float32(steps)
        where = (part.ctypes.data for part in self.held)
        return CMatrix(INT8, 4 * values.shape[1], columns.blocks, steps, shift, 0, 0, *where, None)

    def _int16(self, matrix: Bits, columns: Columns) -> CMatrix:
        whole, scale = sixteen_bits(matrix)
        values = _laid_out(whole, columns, 2)
        self.held = values, columns.order(scale) / np.float32(UNITS)
        where = values.ctypes.data, None, self.held[1].ctypes.data, None
        return CMatrix(INT16, 2 * values.shape[1], columns.blocks, UNITS, 0, 0, 0, *where)

    def _bfloat16(self, matrix: Bits, columns: Columns) -> CMatrix:
        values = _laid_out(matrix, columns, 2)
        self.held = (values,)
        return CMatrix(BFLOAT16, 2 * values.shape[1], columns.blocks, 0, 0, 0, 0, values.ctypes.data, None, None, None)

    def _float32(self, matrix: Floats, columns: Columns) -> CMatrix:
        """Copied only if its rows are no whole vectors."""
        N, K = matrix.shape
        filled = _filled(K, columns.lanes)
        if filled == K:
            values = np.ascontiguousarray(matrix)
        else:
            values = aligned((N, filled), np.float32)
            values[:, :K], values[:, K:] = matrix, 0
        zeros = np.zeros(filled, np.float32)
        self.held = values, zeros
        outputs = N // 4 if columns.gates else N
        where = values.ctypes.data, None, None, zeros.ctypes.data
        return CMatrix(FLOAT32, filled, columns.blocks, 0, 0, outputs, columns.gates, *where)


def sixteen_bits(matrix: NDArray[Any]) -> tuple[NDArray[np.int16], Floats]:
    """Rows (N, K) as int16 and scales (N,): no sum of a row's products with numbers up to `UNITS` leaves 31 bits."""
    N, K = matrix.shape
    room = np.float32(0.999 * ((2**31 - 1) / UNITS - K / 2))  # what a row may sum up to, behind what rounding adds
    whole, scale = np.empty((N, K), np.int16), np.empty(N, np.float32)
    for some in _pieces(N):
        rows = from_bfloat16(matrix[some]) if matrix.dtype == np.uint16 else matrix[some]
        size = np.abs(rows)
        needed = np.maximum(size.sum(axis=1) / room, size.max(axis=1, initial=0) / np.float32(32767))  # (rows,)
        scale[some] = np.where(needed > 0, needed, 1)
        whole[some] = np.rint(rows / scale[some, None])
    return whole, scale


def _laid_out(
    values: NDArray[Any], columns: Columns, together: int, sums: NDArray[np.int32] | None = None
) -> NDArray[Any]:
    """Rows (N, K) as blocks (blocks, K / together, 4, W, together), K filled up; `sums`: of each int8 row."""
    size, lanes = 4 * columns.lanes, columns.lanes
    K = _filled(values.shape[1], size // values.itemsize)  # whole vectors of bytes
    out = aligned((columns.blocks, K // together, 4, lanes, together), values.dtype)
    if (library := c_library()) is not None:
        rows, share = np.ascontiguousarray(values), -(-columns.blocks // 2)
        lengths = rows.shape[1] * rows.itemsize, K * rows.itemsize

        def part(first: int) -> Callable[[], int]:
            places = columns.source[first * size :], rows, out[first:], None if sums is None else sums[first * size :]
            where = (None if place is None else place.ctypes.data for place in places)
            return partial(library.elmokit_lay_out, min(share, columns.blocks - first), size, *lengths, *where)

        side_by_side([part(first) for first in range(0, columns.blocks, share)])
        return out
    if sums is not None:
        sums[:] = columns.order(
            np.concatenate([values[some].sum(axis=1, dtype=np.int32) for some in _pieces(len(values))])
        )
    group = np.dtype({4: np.uint32, 2: np.uint32}[together])  # what stands side by side moves as one number
    for some in _pieces(columns.blocks, PIECE):  # so that no other copy of the matrix is made
        rows = columns.order(values, some.start * size, some.stop * size)  # (blocks * 4 * W, K)
        if rows.shape[1] < K:
            rows = np.concatenate([rows, np.zeros((len(rows), K - rows.shape[1]), rows.dtype)], axis=1)
        whole = rows.view(group).reshape(-1, 4, lanes, K // together)
        out[some].view(group)[..., 0] = whole.transpose(0, 3, 1, 2)
    return out


def _pieces(length: int, size: int = ROWS) -> Iterator[slice]:
    return (slice(first, first + size) for first in range(0, length, size))


def _filled(size: int, step: int) -> int:
    return -(-size // step) * step
