"""Matrices as int8 with one scale per output row, and as the modes of inference hold them."""

from typing import NamedTuple

import torch
from torch import Tensor

PIECE = 1024  # rows that are quantised at a time
STEPS = 127  # the largest int8 used; -128 is left out so that a row is symmetric


class Int8Matrix(NamedTuple):
    """A matrix as int8 with a scale for each of its rows; or several, stacked."""

    values: Tensor  # (..., N, K) int8
    scale: Tensor  # (..., N) float32


Matrix = Tensor | Int8Matrix


def quantise(values: Tensor, *, axes: int = 1) -> tuple[Tensor, Tensor]:
    """int8 and float32 scales, one for each index of the first `axes` axes; off by at most half a scale."""
    rows = values.flatten(axes).flatten(0, axes - 1)  # (rows, K)
    largest = torch.maximum(rows.amax(dim=-1), -rows.amin(dim=-1))  # (rows,), without a copy as large as the values
    scale = torch.where(largest > 0, largest / STEPS, 1.0)
    whole = torch.empty(rows.shape, dtype=torch.int8)
    for k in range(0, len(rows), PIECE):  # nor is any other made
        some = slice(k, k + PIECE)
        whole[some] = (rows[some] / scale[some, None]).round_().clamp_(-STEPS, STEPS)
    return whole.view(values.shape), scale.view(values.shape[:axes])


def dequantise(values: Tensor, scale: Tensor) -> Tensor:
    spread = scale.float().reshape(*scale.shape, *(1 for _ in range(values.ndim - scale.ndim)))
    return values.to(torch.float32) * spread


def sides(matrix: Matrix) -> list[Matrix]:
    """A stack (R, N, K) as R matrices."""
    return list(matrix) if isinstance(matrix, Tensor) else [Int8Matrix(*one) for one in zip(*matrix, strict=True)]


def held(matrix: Matrix, mode: torch.dtype) -> Matrix:
    """As the mode holds it: int8, bfloat16 or float32."""
    if mode == torch.int8:
        if isinstance(matrix, Int8Matrix):
            return matrix
        return Int8Matrix(*quantise(matrix.float(), axes=matrix.ndim - 1))
    return (dequantise(*matrix) if isinstance(matrix, Int8Matrix) else matrix).to(mode)


def widened(matrix: Matrix, mode: torch.dtype) -> Tensor:
    """The same as float32: rounded as the mode rounds."""
    found = held(matrix, mode)
    return dequantise(*found) if isinstance(found, Int8Matrix) else found.float()
