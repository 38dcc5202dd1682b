"""Matrices as int8 with one scale per output row, and as the modes of inference hold them."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.native import numbers
from elmokit.native.numbers import STEPS as STEPS
from elmokit.native.numbers import Floats, Int8Array


class Int8Matrix(NamedTuple):
    """A matrix as int8 with a scale for each of its rows; or several, stacked."""

    values: Tensor  # (..., N, K) int8
    scale: Tensor  # (..., N) float32


Matrix = Tensor | Int8Matrix


def quantise(values: Tensor, *, axes: int = 1) -> tuple[Tensor, Tensor]:
    """int8 and float32 scales, one for each index of the first `axes` axes; off by at most half a scale."""
    whole, scale = numbers.quantise(values.detach().numpy(), axes=axes)
    return torch.from_numpy(whole), torch.from_numpy(scale)


def dequantise(values: Tensor, scale: Tensor) -> Tensor:
    return torch.from_numpy(numbers.dequantise(Int8Array(values.numpy(), as_floats(scale))))


def as_floats(values: Tensor) -> Floats:
    """As float32, by this thread alone: torch's others would spin beside what comes next. float32 is not copied."""
    values = values.detach()
    if values.dtype == torch.bfloat16:
        return numbers.from_bfloat16(values.view(torch.int16).numpy().view(np.uint16))
    return values.numpy().astype(np.float32, copy=False)


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
