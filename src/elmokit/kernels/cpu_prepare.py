"""A model's matrices laid out once for this CPU: which products, and what runs around them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.kernels.char_cnn import Filter
from elmokit.kernels.contract import LstmRules, PreparedRecurrence
from elmokit.kernels.cpu_lstm import CpuLstm
from elmokit.kernels.native import Linear, NativeLstm, NativeTokens, native_library
from elmokit.kernels.products import Matrix, cpu_product, quantised


def prepare_lstm(
    w_x: Sequence[Matrix],
    w_h: Sequence[Matrix],
    bias: Tensor,
    projection: Sequence[Matrix] | None,
    rules: LstmRules,
    mode: torch.dtype,
) -> PreparedRecurrence:
    """A layer whose matrices are given per direction, for many runs in this mode."""
    library = native_library() if mode == torch.int8 else None
    if library is not None:
        last = None if projection is None else map(quantised, projection)
        return NativeLstm(library, map(quantised, w_x), map(quantised, w_h), bias, last, rules)
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

    Linear layers are matrices with their biases; a highway's are its transform and its gate.
    """
    library = native_library() if mode == torch.int8 else None
    if library is None:
        return None

    def linear(pair: tuple[Matrix, Tensor]) -> Linear:
        return Linear(quantised(pair[0]), pair[1])

    return NativeTokens(
        library,
        characters,
        filters,
        [(linear(transform), linear(gate)) for transform, gate in highways],
        None if projection is None else linear(projection),
        pad=pad,
    )
