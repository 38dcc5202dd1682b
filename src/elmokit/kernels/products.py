"""Products with a fixed matrix on a CPU, each in the layout that its library likes: float32, bfloat16, int8.

float32 multiplies by the matrix where it lies (mapped from the file, so no copy is made) wherever there are many rows
at once. The recurrent product has as many rows as there are sentences, and there the layout decides: a copy blocked for
oneDNN is two to three times faster for 2 to 64 rows, and for a single row, where reading the matrix is all the work, a
transposed copy is. Each copy is made when it is first needed.
"""

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from elmokit.kernels.cpu import FEW_ROWS, CpuFeatures, cpu_features, even_rows
from elmokit.kernels.int8 import Int8Matrix, Int8Product, dequantise, quantise

Matrix = Tensor | Int8Matrix


class Product(Protocol):
    """Multiplies rows (M, K) by one matrix (N, K), transposed."""

    def affine(self, x: Tensor, bias: Tensor) -> Tensor:
        """x times the matrix, plus the bias (N,); a new tensor (M, N)."""

    def add(self, x: Tensor, onto: Tensor) -> Tensor:
        """`onto` (M, N) plus x times the matrix; it may be overwritten."""

    def project(self, x: Tensor, out: Tensor) -> Tensor:
        """x times the matrix into `out` (M, N), for numbers within +-1."""


class FloatProduct:
    """In the matrix's own float type, or in float32 by a matrix that was rounded to something narrower."""

    def __init__(self, matrix: Tensor, *, packs: bool = False) -> None:
        self.matrix, self.packs = matrix, packs

    @cached_property
    def transposed(self) -> Tensor:
        return self.matrix.t().contiguous()  # (K, N)

    @cached_property
    def blocked(self) -> Tensor:
        blocked: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.matrix, None)
        return blocked

    def affine(self, x: Tensor, bias: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.matrix, bias)

    def add(self, x: Tensor, onto: Tensor) -> Tensor:
        if not self.packs:
            return torch.addmm(onto, x, self.matrix.t(), out=onto)
        if len(x) == 1:
            return torch.addmm(onto, x, self.transposed, out=onto)
        if len(x) <= FEW_ROWS:
            made: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, onto, self.blocked, None, "add")
            return made
        made = torch.ops.mkldnn._linear_pointwise.default(even_rows(x), self.blocked, None, "none", [], "")
        return onto.add_(made[: len(x)])

    def project(self, x: Tensor, out: Tensor) -> Tensor:
        return torch.mm(x, self.matrix.t(), out=out)


class Bfloat16Product:
    """Weights and activations in bfloat16, for CPUs with instructions for that; the results are taken as float32."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix: Tensor = matrix.to(torch.bfloat16)
        self.packs: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if self.packs:
            self.matrix = torch.ops.mkldnn._reorder_linear_weight(self.matrix, None)

    def affine(self, x: Tensor, bias: Tensor) -> Tensor:
        return self._multiply(x).float().add_(bias)

    def add(self, x: Tensor, onto: Tensor) -> Tensor:
        return onto.add_(self._multiply(x))

    def project(self, x: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self._multiply(x))

    def _multiply(self, x: Tensor) -> Tensor:
        if not self.packs:
            return torch.nn.functional.linear(x.bfloat16(), self.matrix)
        many = even_rows(x.bfloat16())
        made: Tensor = torch.ops.mkldnn._linear_pointwise.default(many, self.matrix, None, "none", [], "")
        return made[: len(x)]


def cpu_product(
    matrix: Matrix,
    mode: torch.dtype,
    *,
    features: CpuFeatures | None = None,
    packs: bool = False,
    spiky: bool = False,
) -> Product:
    """The product in this mode by what the CPU has.

    `packs` where few rows at a time are to be expected, `spiky` where rows have a few large numbers among small ones.
    """
    features = features or cpu_features()
    if mode == torch.int8 and features.onednn:
        held = matrix if isinstance(matrix, Int8Matrix) else Int8Matrix(*quantise(matrix.float()))
        return Int8Product(held, features=features, spiky=spiky)
    whole = dequantise(*matrix) if isinstance(matrix, Int8Matrix) else matrix
    if mode == torch.int8:  # no library here multiplies int8: what is left of the mode is its weights
        whole = dequantise(*quantise(whole.float())) if isinstance(matrix, Tensor) else whole
    if mode == torch.bfloat16:
        if features.bfloat16 and features.onednn:
            return Bfloat16Product(whole)
        whole = whole.to(torch.bfloat16)
    return FloatProduct(whole.float(), packs=packs and features.onednn)
