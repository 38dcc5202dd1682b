"""Matrices as whole numbers and as bfloat16, in NumPy; bit for bit what torch's operations give.

NumPy has no bfloat16: it goes as its bits, in uint16. int8 has one scale per output row. Four bits (docs/formats.md): a
number is a whole one from -7 to 7 times the scale of its group of 64 along the input; two stand in a byte, each with 8
added, the first of a pair in the low four bits.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.native.library import c_library
from elmokit.native.threads import side_by_side

PIECE = 1024  # rows at a time: nothing else as large as a whole matrix is made
STEPS = 127  # the largest int8 used; -128 is left out so that a row is symmetric
GROUP, OFFSET = 64, 8  # of four bits

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]


class Int8Array(NamedTuple):
    """A matrix as int8 with a scale for each of its rows; or several, stacked."""

    values: NDArray[np.int8]  # (..., N, K)
    scale: Floats  # (..., N)


ArrayMatrix = NDArray[Any] | Int8Array  # float32, or bfloat16 as `Bits`


def aligned(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Room for numbers that starts where a line of the cache does, so that no vector lies across two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + 63, np.uint8)
    first = -room.ctypes.data % 64
    numbers: NDArray[Any] = room[first : first + size].view(dtype)
    return numbers.reshape(shape)


def quantise(values: Floats, *, axes: int = 1) -> Int8Array:
    """int8 and float32 scales, one for each index of the first `axes` axes; off by at most half a scale."""
    rows = values.reshape(int(np.prod(values.shape[:axes])), -1)  # (rows, K)
    if rows.size:
        largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))  # without a copy as large as the values
    else:
        largest = np.zeros(len(rows), np.float32)
    scale = np.where(largest > 0, largest / np.float32(STEPS), np.float32(1))
    whole = np.empty(rows.shape, np.int8)
    for k in range(0, len(rows), PIECE):
        some = slice(k, k + PIECE)
        whole[some] = np.clip(np.rint(rows[some] / scale[some, None]), -STEPS, STEPS)
    return Int8Array(whole.reshape(values.shape), scale.reshape(values.shape[:axes]))


def dequantise(matrix: Int8Array) -> Floats:
    values, scale = matrix
    spread = scale.astype(np.float32).reshape(*scale.shape, *(1 for _ in range(values.ndim - scale.ndim)))
    widened: Floats = values.astype(np.float32)
    widened *= spread
    return widened


def to_bfloat16(values: Floats) -> Bits:
    """The nearest, even bits where two are as near."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(bits: Bits) -> Floats:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def widen_groups(packed: NDArray[np.uint8], scale: NDArray[Any]) -> Floats:
    """Bytes (..., K / 2) and scales (..., K / 64) to float32 (..., K)."""
    pairs = np.stack([packed & 15, packed >> 4], axis=-1).astype(np.float32)
    pairs -= OFFSET
    groups = pairs.reshape(*scale.shape, GROUP)
    groups *= scale.astype(np.float32)[..., None]
    return groups.reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def groups_as_int8(packed: NDArray[np.uint8], scale: NDArray[Any]) -> Int8Array:
    """The same as int8 with one scale for each row, which moves a number by at most half of an int8 step."""
    rows, scales = packed.reshape(-1, packed.shape[-1]), scale.reshape(-1, scale.shape[-1])
    values = np.empty((len(rows), 2 * rows.shape[1]), np.int8)
    factors = np.empty(len(rows), np.float32)
    if (library := c_library()) is not None and len(rows):
        given = np.ascontiguousarray(rows), np.ascontiguousarray(scales, np.float32)
        share = -(-len(rows) // 2)
        side_by_side(
            [
                partial(
                    library.elmokit_groups,
                    min(share, len(rows) - k),
                    values.shape[1],
                    *(part[k:].ctypes.data for part in (*given, values, factors)),
                )
                for k in range(0, len(rows), share)
            ]
        )
    else:
        for k in range(0, len(rows), PIECE):
            some = slice(k, k + PIECE)
            values[some], factors[some] = quantise(widen_groups(rows[some], scales[some]))
    leading = packed.shape[:-1]
    return Int8Array(values.reshape(*leading, -1), factors.reshape(leading))
