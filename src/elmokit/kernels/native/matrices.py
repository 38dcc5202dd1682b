"""Matrices as products.h wants them: int8 laid out anew, floats where they lie."""

import ctypes

import torch
from torch import Tensor

from elmokit.kernels.int8 import Int8Matrix

PIECE = 16  # blocks that are laid out at a time
INT8, KINDS = 0, {torch.float32: 1, torch.bfloat16: 2}


class CMatrix(ctypes.Structure):
    """`Matrix` of products.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("inputs", ctypes.c_int32),
        ("blocks", ctypes.c_int32),
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
        self.structure = (
            self._floats(matrix, columns) if isinstance(matrix, Tensor) else self._int8(matrix, columns, most, positive)
        )

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)

    def _int8(self, matrix: Int8Matrix, columns: Columns, most: int, positive: bool) -> CMatrix:
        steps, shift = (most, 0) if positive else (most // 2, most // 2 + 1)
        lanes, blocks, size = columns.lanes, columns.blocks, 4 * columns.lanes
        K = _filled(matrix.values.shape[1], lanes)
        values = torch.empty(blocks, K // 4, 4, lanes, 4, dtype=torch.int8)
        start = torch.empty(blocks * size, dtype=torch.int32)
        for first in range(0, blocks, PIECE):  # so that no other copy of the matrix is made
            some = columns.order(matrix.values, first * size, (first + PIECE) * size)  # (blocks * 4 * W, K)
            whole = torch.nn.functional.pad(some, (0, K - some.shape[1])).view(-1, 4, lanes, K // 4, 4)
            values[first : first + PIECE] = whole.permute(0, 3, 1, 2, 4)
            start[first * size : (first + PIECE) * size] = -shift * some.sum(dim=1, dtype=torch.int32)
        scale = columns.order(matrix.scale.float()) / steps
        self.held = values, start, scale
        return CMatrix(INT8, K, blocks, shift, 0, 0, *(part.data_ptr() for part in self.held), None)

    def _floats(self, matrix: Tensor, columns: Columns) -> CMatrix:
        """float32 or bfloat16, copied only if its rows are no whole vectors."""
        N, K = matrix.shape
        filled = _filled(K, columns.lanes)
        values = matrix.contiguous() if filled == K else torch.nn.functional.pad(matrix, (0, filled - K))
        zeros = torch.zeros(filled, dtype=matrix.dtype)
        self.held = values, zeros
        outputs, kind = N // 4 if columns.gates else N, KINDS[matrix.dtype]
        where = values.data_ptr(), None, None, zeros.data_ptr()
        return CMatrix(kind, filled, columns.blocks, 0, outputs, columns.gates, *where)


def _filled(size: int, lanes: int) -> int:
    return -(-size // lanes) * lanes
