"""Products with fixed matrices on a CPU, each in the layout that its library likes: float32, bfloat16, int8.

float32 multiplies by the matrix where it lies (mapped from the file, so no copy is made) wherever there are many rows
at once. The recurrent product has as many rows as there are sentences, and there the layout decides: a copy blocked for
oneDNN is two to three times faster for 2 to 64 rows, and for a single row, where reading the matrix is all the work, a
transposed copy is. Each copy is made when it is first needed.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from elmokit.kernels.cpu.features import CpuFeatures, cpu_features, even_rows
from elmokit.kernels.cpu.int8 import Int8Matrix, Int8Product, Rows, dequantise, quantise

Matrix = Tensor | Int8Matrix


class Product(Protocol):
    """Multiplies rows (R, M, K) by R matrices (N, K), transposed, each direction's by its own, from the `first` on."""

    itemsize: int  # bytes of a number in a matrix

    def affine(self, x: Tensor, bias: Tensor, first: int = 0) -> Tensor:
        """x times the matrices, plus the bias (R, 1, N); a new tensor (R, M, N)."""

    def add(self, x: Tensor, onto: Tensor, first: int = 0) -> None:
        """x times the matrices added to `onto` (R, M, N)."""

    def project(self, x: Tensor, out: Tensor, first: int = 0) -> None:
        """x times the matrices into `out` (R, M, N), for numbers within +-1."""


class FloatProduct:
    """In the matrices' own float type, or in float32 by matrices that were rounded to something narrower."""

    itemsize = 4

    def __init__(self, matrices: Sequence[Tensor], *, packs: bool = False) -> None:
        self.matrices, self.packs = matrices, packs

    @cached_property
    def transposed(self) -> list[Tensor]:
        return [matrix.t().contiguous() for matrix in self.matrices]  # (K, N) each

    @cached_property
    def blocked(self) -> list[Tensor]:
        return [torch.ops.mkldnn._reorder_linear_weight(matrix, None) for matrix in self.matrices]

    def affine(self, x: Tensor, bias: Tensor, first: int = 0) -> Tensor:
        made = x.new_empty(*x.shape[:2], len(self.matrices[0]))  # (R, M, N)
        for rows, matrix, one, out in zip(
            x.unbind(), self.matrices[first:], bias.unbind(), made.unbind(), strict=False
        ):
            torch.addmm(one, rows, matrix.t(), out=out)
        return made

    def add(self, x: Tensor, onto: Tensor, first: int = 0) -> None:
        if not self.packs or x.shape[1] == 1:
            turned = self.transposed if self.packs else [matrix.t() for matrix in self.matrices]
            for rows, matrix, out in zip(x.unbind(), turned[first:], onto.unbind(), strict=False):
                torch.addmm(out, rows, matrix, out=out)
            return
        for rows, matrix, out in zip(even_rows(x).unbind(), self.blocked[first:], onto.unbind(), strict=False):
            made = torch.ops.mkldnn._linear_pointwise.default(rows, matrix, None, "none", [], "")
            out.add_(made[: len(out)])

    def project(self, x: Tensor, out: Tensor, first: int = 0) -> None:
        for rows, matrix, one in zip(x.unbind(), self.matrices[first:], out.unbind(), strict=False):
            torch.mm(rows, matrix.t(), out=one)


class Bfloat16Product:
    """Weights and activations in bfloat16, for CPUs with instructions for that; the results are taken as float32."""

    itemsize = 2

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        self.matrices = [matrix.to(torch.bfloat16) for matrix in matrices]
        self.packs: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if self.packs:
            self.matrices = [torch.ops.mkldnn._reorder_linear_weight(matrix, None) for matrix in self.matrices]

    def affine(self, x: Tensor, bias: Tensor, first: int = 0) -> Tensor:
        parts = self._multiply(x, first)
        made = x.new_empty(len(parts), *parts[0].shape)  # (R, M, N)
        for part, out in zip(parts, made.unbind(), strict=True):
            out.copy_(part)
        return made.add_(bias)

    def add(self, x: Tensor, onto: Tensor, first: int = 0) -> None:
        for made, out in zip(self._multiply(x, first), onto.unbind(), strict=True):
            out.add_(made)

    def project(self, x: Tensor, out: Tensor, first: int = 0) -> None:
        for made, one in zip(self._multiply(x, first), out.unbind(), strict=True):
            one.copy_(made)

    def _multiply(self, x: Tensor, first: int) -> list[Tensor]:
        many, held = x.bfloat16(), self.matrices[first:]  # (R, M, K)
        if not self.packs:
            return [torch.nn.functional.linear(rows, one) for rows, one in zip(many.unbind(), held, strict=False)]
        op = torch.ops.mkldnn._linear_pointwise.default
        pairs = zip(even_rows(many).unbind(), held, strict=False)
        return [op(rows, matrix, None, "none", [], "")[: x.shape[1]] for rows, matrix in pairs]


def cpu_product(
    matrices: Sequence[Matrix],
    mode: torch.dtype,
    *,
    features: CpuFeatures | None = None,
    packs: bool = False,
    rows: Rows = "even",
) -> Product:
    """The product in this mode by what the CPU has.

    `packs` if few rows at a time are expected; `rows` says what is in them.
    """
    features = features or cpu_features()
    if mode == torch.int8 and features.onednn:
        return Int8Product(map(quantised, matrices), features=features, rows=rows)
    whole = [rounded(matrix, mode) for matrix in matrices]
    if mode == torch.bfloat16 and features.bfloat16 and features.onednn:
        return Bfloat16Product(whole)
    return FloatProduct([matrix.float() for matrix in whole], packs=packs and features.onednn)


def quantised(matrix: Matrix) -> Int8Matrix:
    """As it is, or rounded."""
    return matrix if isinstance(matrix, Int8Matrix) else Int8Matrix(*quantise(matrix.float()))


def rounded(matrix: Matrix, mode: torch.dtype) -> Tensor:
    """In the mode's type; for int8, which no library here multiplies, what is left of the mode: its weights."""
    if isinstance(matrix, Int8Matrix):
        matrix = dequantise(*matrix)
    elif mode == torch.int8:
        matrix = dequantise(*quantised(matrix))
    return matrix.to(torch.bfloat16) if mode == torch.bfloat16 else matrix
