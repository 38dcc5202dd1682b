"""A model's matrices laid out once for this CPU: which products, and what runs around them."""

from collections.abc import Sequence
from ctypes import CDLL
from functools import partial

import torch
from torch import Tensor

from elmokit.kernels.char_cnn import Filter
from elmokit.kernels.contract import LstmRules, PreparedRecurrence
from elmokit.kernels.cpu.c import Linear, NativeLstm, NativeTokens, c_library
from elmokit.kernels.cpu.features import cpu_features
from elmokit.kernels.cpu.int8 import STEPS, dequantise
from elmokit.kernels.cpu.lstm import CpuLstm
from elmokit.kernels.cpu.products import Matrix, cpu_product, quantised, rounded


def prepare_lstm(
    w_x: Sequence[Matrix],
    w_h: Sequence[Matrix],
    bias: Tensor,
    projection: Sequence[Matrix] | None,
    rules: LstmRules,
    mode: torch.dtype,
) -> PreparedRecurrence:
    """A layer whose matrices are given per direction, for many runs in this mode."""
    library = _library(mode)
    if library is not None:
        as_held = partial(_held, mode)
        last = None if projection is None else map(as_held, projection)
        return NativeLstm(library, map(as_held, w_x), map(as_held, w_h), bias, last, rules)
    out = None if projection is None else cpu_product(projection, mode)
    return CpuLstm(cpu_product(w_x, mode), cpu_product(w_h, mode, packs=True), bias, out, rules)


def prepare_tokens(
    characters: Tensor,
    filters: Sequence[Filter],
    highways: Sequence[tuple[tuple[Matrix, Tensor], tuple[Matrix, Tensor]]],
    projection: tuple[Matrix, Tensor] | None,
    *,
    pad: int | None,
    mode: torch.dtype,
) -> NativeTokens | None:
    """A token encoder of characters with ReLU as one call, where this machine has that for this mode.

    Linear layers are matrices with their biases; a highway's are its transform and its gate. In int8 the projection's
    weights are multiplied as floats: it is little of the work, and what it loses goes straight into the token layer.
    """
    library = _library(mode)
    if library is None:
        return None

    def linear(pair: tuple[Matrix, Tensor]) -> Linear:
        return Linear(_held(mode, pair[0]), pair[1])

    return NativeTokens(
        library,
        characters,
        filters,
        [(linear(transform), linear(gate)) for transform, gate in highways],
        None if projection is None else Linear(_widened(mode, projection[0]), projection[1]),
        pad=pad,
    )


def arithmetic(mode: torch.dtype) -> str:
    """How this machine multiplies in a mode, in words that are the same where a model's vectors are."""
    library, features, name = _library(mode), cpu_features(), str(mode).removeprefix("torch.")
    if mode == torch.int8 and (library is not None or features.onednn):
        wide = features.vnni if library is None else library.elmokit_most() > STEPS
        return f"int8 {'by torch' if library is None else 'in C'}, activations of {8 if wide else 7} bits"
    if mode == torch.bfloat16 and library is not None:
        return "bfloat16 in C, as int16"
    if mode == torch.bfloat16 and features.bfloat16 and features.onednn:
        return "bfloat16 by torch"
    return f"float32 with {name} weights" if mode in (torch.int8, torch.bfloat16) else name


def _library(mode: torch.dtype) -> CDLL | None:
    """Who runs this mode in C. bfloat16 has instructions of its own on some CPUs, which torch's libraries know."""
    features = cpu_features()
    return None if mode == torch.bfloat16 and features.bfloat16 and features.onednn else c_library()


def _held(mode: torch.dtype, matrix: Matrix) -> Matrix:
    """A matrix as the mode holds it."""
    return quantised(matrix) if mode == torch.int8 else rounded(matrix, mode).to(mode)


def _widened(mode: torch.dtype, matrix: Matrix) -> Tensor:
    """The same as floats."""
    held = _held(mode, matrix)
    return held if isinstance(held, Tensor) else dequantise(*held)
