"""Matrix products in int8 on a CPU: weights with one scale per output row, activations with one per row.

A row of activations has a scale of its own, so nothing else in the batch touches its numbers, and the sums are exact
integers, so their order does not matter either. What is projected (the gated cell, never above 1) is long and spiky,
and one int8 per number would lose most of it: it goes through as two, the second holding what the first left over.

Two libraries inside torch multiply int8. oneDNN's `qlinear` is the one that torch's own compiler emits and takes plain
tensors; it is the one used. FBGEMM is up to three times faster where the CPU lacks VNNI, but its weights are tensors of
a quantised type, which torch has announced to remove: it is used there for as long as it exists.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.kernels.cpu import CpuFeatures, cpu_features, even_rows

STEPS = 127  # the largest int8 used; -128 is left out so that a row is symmetric


class Int8Matrix(NamedTuple):
    """A matrix as int8 with a scale for each of its rows."""

    values: Tensor  # (N, K) int8
    scale: Tensor  # (N,) float32


def quantise(values: Tensor, *, axes: int = 1) -> tuple[Tensor, Tensor]:
    """int8 and float32 scales, one for each index of the first `axes` axes; off by at most half a scale."""
    rows = values.flatten(axes)
    largest = torch.maximum(rows.amax(dim=-1), -rows.amin(dim=-1))  # (rows), without a copy as large as the values
    scale = torch.where(largest > 0, largest / STEPS, 1.0)
    scaled = values / _spread(scale, values)
    return scaled.round_().clamp_(-STEPS, STEPS).to(torch.int8), scale


def dequantise(values: Tensor, scale: Tensor) -> Tensor:
    return values.to(torch.float32) * _spread(scale.to(torch.float32), values)


def _spread(scale: Tensor, values: Tensor) -> Tensor:
    return scale.reshape(*scale.shape, *(1 for _ in range(values.ndim - scale.ndim)))


class OneDnnMultiply:
    """q (M, K), whole numbers within +-`steps`, times the matrix: (M, N) float32."""

    def __init__(self, matrix: Int8Matrix, *, steps: int) -> None:
        values, self.scale = matrix
        self.packed = torch.ops.onednn.qlinear_prepack(values, None)
        self.zeros = torch.zeros(len(values), dtype=torch.int32)
        # Activations are unsigned there; what the shift adds to each sum is known beforehand and taken off as a bias.
        self.shift = steps + 1
        self.bias = -self.shift * values.sum(dim=1, dtype=torch.int32) * self.scale  # (N,)

    def __call__(self, q: Tensor) -> Tensor:
        shifted = (even_rows(q) + self.shift).to(torch.uint8)  # (M, K), or a few rows more
        made: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            shifted, 1.0, 0, self.packed, self.scale, self.zeros, self.bias, 1.0, 0, torch.float32, "none", [], ""
        )
        return made[: len(q)]


class FbgemmMultiply:
    """The same by FBGEMM."""

    def __init__(self, matrix: Int8Matrix, *, steps: int) -> None:
        values, scale = matrix
        self.shift = steps + 1
        zeros = torch.zeros(len(values), dtype=torch.int64)
        with warnings.catch_warnings():  # of its removal; the other library takes over then
            warnings.simplefilter("ignore")
            held = torch._make_per_channel_quantized_tensor(values.contiguous(), scale.double(), zeros, 0)
            self.packed = torch.ops.quantized.linear_prepack(held, None)

    def __call__(self, q: Tensor) -> Tensor:
        made: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            q, 1.0, self.shift, self.packed
        )
        return made

    @staticmethod
    def present() -> bool:
        names = ("linear_prepack", "linear_with_input_q_dq_qweight_dq_output_fp32")
        held = (
            hasattr(torch, "_make_per_channel_quantized_tensor")
            and "fbgemm" in torch.backends.quantized.supported_engines
        )
        return held and all(hasattr(torch.ops.quantized, name) for name in names)


class Int8Product:
    """A `Product` whose weights and activations are int8; sums and results are float32.

    `spiky` activations go through as two int8 each where the CPU leaves but seven bits to one.
    """

    def __init__(self, matrix: Int8Matrix, *, features: CpuFeatures | None = None, spiky: bool = False) -> None:
        features = features or cpu_features()
        # Without VNNI the products of two neighbours are added in int16, which holds two of 127 * 127 but no more.
        self.steps = STEPS if features.vnni else STEPS // 2
        library = FbgemmMultiply if not features.vnni and FbgemmMultiply.present() else OneDnnMultiply
        self.multiply = library(matrix, steps=self.steps)
        self.width = len(matrix.values)  # N
        self.spiky = spiky and not features.vnni

    def affine(self, x: Tensor, bias: Tensor) -> Tensor:
        if self.spiky:
            largest = self._units(x).mul_(self.steps)  # (M, 1)
            made = self.project(x / largest, x.new_empty(len(x), self.width))  # (M, N)
            return torch.addcmul(bias, made, largest, out=made)
        units = self._units(x)
        made = self.multiply((x / units).round_())  # (M, N)
        return torch.addcmul(bias, made, units, out=made)

    def add(self, x: Tensor, onto: Tensor) -> Tensor:
        units = self._units(x)
        return torch.addcmul(onto, self.multiply((x / units).round_()), units, out=onto)

    def project(self, x: Tensor, out: Tensor) -> Tensor:
        M, K = x.shape
        parts = x.new_empty(2, M, K)  # what is near, and what that leaves over
        exact = torch.mul(x, self.steps, out=parts[1])
        torch.round(exact, out=parts[0])
        finer = 2 * self.steps
        parts[1].sub_(parts[0]).mul_(finer).round_()
        near, rest = self.multiply(parts.view(2 * M, K)).view(2, M, -1)
        return torch.add(near, rest, alpha=1 / finer, out=out).div_(self.steps)

    def _units(self, x: Tensor) -> Tensor:
        """What 1 stands for in each row. (M, 1)"""
        return x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-30).div_(self.steps)
