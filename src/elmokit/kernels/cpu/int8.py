"""Matrix products in int8 on a CPU: weights with one scale per output row, activations with one per row.

A row of activations has a scale of its own, so nothing else in the batch touches its numbers, and the sums are exact
integers, so their order does not matter either. What is projected (the gated cell, never above 1) is long and spiky,
and one int8 per number would lose most of it: it goes through as two, the second holding what the first left over.

Two libraries inside torch multiply int8. oneDNN's `qlinear` is the one that torch's own compiler emits and takes plain
tensors; it is the one used. FBGEMM is up to three times faster where the CPU lacks VNNI, but its weights are tensors of
a quantised type, which torch has announced to remove: it is used there for as long as it exists.
"""

import threading
import warnings
from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from elmokit.kernels.cpu.features import CpuFeatures, cpu_features, even_rows

Rows = Literal["even", "spiky", "positive"]  # what activations are like: spiky ones are mostly small, some large
PIECE = 1024  # rows that are quantised at a time
_QUIET = threading.Lock()  # which warnings are shown is set for the whole process
STEPS = 127  # the largest int8 used; -128 is left out so that a row is symmetric


class Int8Matrix(NamedTuple):
    """A matrix as int8 with a scale for each of its rows."""

    values: Tensor  # (N, K) int8
    scale: Tensor  # (N,) float32


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
    return values.to(torch.float32) * _spread(scale.to(torch.float32), values)


def _spread(scale: Tensor, values: Tensor) -> Tensor:
    return scale.reshape(*scale.shape, *(1 for _ in range(values.ndim - scale.ndim)))


class OneDnnMultiply:
    """Rows of whole numbers from -`shift` to `steps` times matrices, one for each direction, by oneDNN.

    `whole` and `pair` make operands, unsigned and shifted, of floats (R, M, K); what the shift adds to each sum is
    known beforehand and taken off as a bias. One product's result is (M, N) float32, in units of 1 / `steps`.
    """

    def __init__(self, matrices: Iterable[Int8Matrix], *, steps: int, shift: int) -> None:
        self.steps, self.shift, self.finer = steps, shift, 2 * (steps + 1)
        self.held = list(map(self._pack, matrices))  # nothing of a matrix is left when the next one is made
        self.zeros = torch.zeros_like(self.held[0][1], dtype=torch.int32)
        # Behind the shift nothing is negative, so that cutting off what follows the point rounds.
        self.middle = torch.tensor(shift + 0.5)
        self.fine_middle = torch.tensor(shift * self.finer + shift + 0.5)

    def _pack(self, matrix: Int8Matrix) -> tuple[Tensor, Tensor, Tensor]:
        """The matrix as oneDNN likes it, its scales (N,) and a bias (N,)."""
        packed = torch.ops.onednn.qlinear_prepack(matrix.values, None)
        scale = matrix.scale / self.steps
        return packed, scale, -self.shift * matrix.values.sum(dim=1, dtype=torch.int32) * scale

    @property
    def width(self) -> int:
        return len(self.zeros)

    def whole(self, x: Tensor, factor: Tensor) -> Tensor:
        """x times factor (R, M, 1) to the nearest whole numbers."""
        # By way of int16: torch has no fast conversion of floats to unsigned bytes.
        return even_rows(torch.addcmul(self.middle, x, factor).to(torch.int16).to(torch.uint8))

    def pair(self, x: Tensor) -> Tensor:
        """x within +-1 as rows (R, 2M, K): what is nearest, then what that leaves over, `finer` times as large."""
        R, M, K = x.shape
        exact = torch.add(self.fine_middle, x, alpha=self.steps * self.finer).to(torch.int32)  # (R, M, K)
        parts = torch.empty(R, 2, M, K, dtype=torch.uint8)
        parts[:, 1].copy_(exact).bitwise_and_(self.finer - 1)
        exact >>= self.steps.bit_length() + 1
        parts[:, 0] = exact
        return even_rows(parts.view(R, 2 * M, K))

    def __call__(self, r: int, operand: Tensor) -> Tensor:
        packed, scale, bias = self.held[r]
        made: Tensor = torch.ops.onednn.qlinear_pointwise.default(
            operand, 1.0, 0, packed, scale, self.zeros, bias, 1.0, 0, torch.float32, "none", [], ""
        )
        return made


class FbgemmMultiply:
    """The same by FBGEMM, which rounds floats itself."""

    def __init__(self, matrices: Iterable[Int8Matrix], *, steps: int, shift: int) -> None:
        self.steps, self.shift, self.finer = steps, shift, 2 * (steps + 1)
        self.near, self.far = torch.tensor(float(steps)), torch.tensor(float(steps * self.finer))
        self.packed = list(map(self._pack, matrices))

    def _pack(self, matrix: Int8Matrix) -> object:
        values, scale = matrix.values.contiguous(), matrix.scale.double() / self.steps
        self.width = len(values)
        zeros = torch.zeros(self.width, dtype=torch.int64)
        with _QUIET, warnings.catch_warnings():  # of its removal; the other library takes over then
            warnings.simplefilter("ignore")
            held = torch._make_per_channel_quantized_tensor(values, scale, zeros, 0)
            return torch.ops.quantized.linear_prepack(held, None)

    def whole(self, x: Tensor, factor: Tensor) -> Tensor:
        return x * factor

    def pair(self, x: Tensor) -> Tensor:
        R, M, K = x.shape
        parts = x.new_empty(R, 2, M, K)
        near = torch.mul(x, self.near, out=parts[:, 0]).round_()
        torch.mul(x, self.far, out=parts[:, 1]).sub_(near, alpha=self.finer)
        return parts.view(R, 2 * M, K)

    def __call__(self, r: int, operand: Tensor) -> Tensor:
        made: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default(
            operand, 1.0, self.shift, self.packed[r]
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

    Positive activations need no sign; spiky ones go through as two int8 each where the CPU leaves seven bits to one.
    """

    itemsize = 1

    def __init__(
        self, matrices: Iterable[Int8Matrix], *, features: CpuFeatures | None = None, rows: Rows = "even"
    ) -> None:
        features = features or cpu_features()
        # Without VNNI the products of two neighbours are added in int16, which holds two of 127 * 127 but no more.
        most = 2 * STEPS + 1 if features.vnni else STEPS
        self.steps, shift = (most, 0) if rows == "positive" else (most // 2, most // 2 + 1)
        library = FbgemmMultiply if not features.vnni and FbgemmMultiply.present() else OneDnnMultiply
        self.multiply = library(matrices, steps=self.steps, shift=shift)
        self.most = torch.tensor(float(self.steps))
        self.spiky = rows == "spiky" and not features.vnni

    def affine(self, x: Tensor, bias: Tensor, first: int = 0) -> Tensor:
        made = x.new_empty(*x.shape[:2], self.multiply.width)  # (R, M, N)
        if self.spiky:
            largest = _largest(x)
            self.project(x / largest, made, first)
            return torch.addcmul(bias, made, largest, out=made)
        self._scaled(x, bias, made, first)
        return made

    def add(self, x: Tensor, onto: Tensor, first: int = 0) -> None:
        self._scaled(x, onto, onto, first)

    def project(self, x: Tensor, out: Tensor, first: int = 0) -> None:
        M = x.shape[1]
        for r, operand in enumerate(self.multiply.pair(x).unbind()):
            made = self.multiply(first + r, operand)  # (2M, N), or a few rows more
            torch.add(made[:M], made[M : 2 * M], alpha=1 / self.multiply.finer, out=out[r])

    def _scaled(self, x: Tensor, onto: Tensor, out: Tensor, first: int) -> None:
        largest = _largest(x)
        operands = self.multiply.whole(x, torch.div(self.most, largest))
        parts = zip(operands.unbind(), onto.unbind(), largest.unbind(), out.unbind(), strict=True)
        for r, (operand, base, unit, one) in enumerate(parts):
            torch.addcmul(base, self.multiply(first + r, operand)[: x.shape[1]], unit, out=one)


def _largest(x: Tensor) -> Tensor:
    """The largest number of each row, by size. (R, M, 1)"""
    return x.abs().amax(dim=2, keepdim=True).clamp_min_(1e-30)
