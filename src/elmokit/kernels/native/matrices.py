"""int8 matrices as int8.h wants them."""

import ctypes

import torch
from torch import Tensor

from elmokit.kernels.int8 import Int8Matrix

PIECE = 16  # blocks that are laid out at a time


class CMatrix(ctypes.Structure):
    """`Matrix` of int8.h."""

    _fields_ = (
        ("inputs", ctypes.c_int32),
        ("blocks", ctypes.c_int32),
        ("shift", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("start", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
    )


class Columns:
    """The order of a matrix's outputs: blocks of four vectors, filled up. Gates stand together, cell by cell."""

    def __init__(self, outputs: int, *, lanes: int, gates: bool = False) -> None:
        groups = 4 if gates else 1
        size, step = outputs // groups, 4 * lanes // groups
        place = torch.arange(-(-size // step) * step).view(-1, 1, step)  # (blocks, 1, step)
        source = torch.arange(groups).view(1, groups, 1) * size + place  # (blocks, groups, step)
        self.source = torch.where(place < size, source, -1).flatten()  # (blocks * 4 * lanes,), -1: filled up
        self.lanes = lanes

    def order(self, rows: Tensor, first: int = 0, end: int | None = None) -> Tensor:
        """Rows (outputs, ...) in this order, or some of that, zeros where it is filled up."""
        source = self.source[first:end]
        ordered = rows.index_select(0, source.clamp_min(0))
        ordered[source < 0] = 0
        return ordered


class PackedMatrix:
    """A matrix laid out for the library, and what its structure points to."""

    def __init__(self, matrix: Int8Matrix, columns: Columns, *, most: int, positive: bool = False) -> None:
        steps, shift = (most, 0) if positive else (most // 2, most // 2 + 1)
        K, size = -(-matrix.values.shape[1] // columns.lanes) * columns.lanes, 4 * columns.lanes
        blocks = len(columns.source) // size
        self.values = torch.empty(blocks, K // 4, 4, columns.lanes, 4, dtype=torch.int8)
        for first in range(0, blocks, PIECE):  # so that no other copy of the matrix is made
            some = columns.order(matrix.values, first * size, (first + PIECE) * size)  # (blocks * 4 * W, K)
            filled = torch.nn.functional.pad(some, (0, K - some.shape[1])).view(-1, 4, columns.lanes, K // 4, 4)
            self.values[first : first + PIECE] = filled.permute(0, 3, 1, 2, 4)
        self.start = -shift * columns.order(matrix.values.sum(dim=1, dtype=torch.int32))
        self.scale = columns.order(matrix.scale.float()) / steps
        self.structure = CMatrix(K, blocks, shift, self.values.data_ptr(), self.start.data_ptr(), self.scale.data_ptr())

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structure)
