"""Layers for inference on this CPU, in C where it can run, else in torch; and which arithmetic that is.

Modes are float32, bfloat16 and int8. Torch multiplies float32 in all of them: bfloat16 and int8 only round the weights.
"""

import platform
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.kernels.char_cnn import Filter
from elmokit.kernels.cpu.c import CompiledLstm, CompiledTokens, Linear, c_library
from elmokit.kernels.cpu.int8 import STEPS, Matrix, held, sides, widened
from elmokit.kernels.reference import LstmRules, LstmState, LstmWeights, reference_lstm

FEW_ROWS, BLOCK = 64, 16


def inference_lstm(
    w_x: Matrix, w_h: Matrix, bias: Tensor, projection: Matrix | None, rules: LstmRules, mode: torch.dtype
) -> nn.Module:
    """A layer whose matrices, stacked for all directions, are laid out once; called like an `LstmLayer`."""
    if (library := c_library()) is None:
        out = None if projection is None else widened(projection, mode)
        return TorchLstm(LstmWeights(widened(w_x, mode), widened(w_h, mode), bias.float(), out), rules)
    as_held = partial(held, mode=mode)
    last = None if projection is None else map(as_held, sides(projection))
    return CompiledLstm(library, map(as_held, sides(w_x)), map(as_held, sides(w_h)), bias, last, rules)


def inference_tokens(
    characters: Tensor | None,
    filters: Sequence[Filter],
    highways: Sequence[tuple[tuple[Matrix, Tensor], tuple[Matrix, Tensor]]],
    projection: tuple[Matrix, Tensor] | None,
    *,
    pad: int | None,
    mode: torch.dtype,
    activation: Literal["relu", "tanh"] = "relu",
    word_dim: int = 0,
) -> CompiledTokens | None:
    """A token encoder as one call into C; None where there is no C.

    Linear layers are matrices with their biases; a highway's are its transform and its gate. In int8 the projection's
    weights are multiplied as floats: it is little of the work, and what it loses goes straight into the token layer.
    """
    if (library := c_library()) is None:
        return None

    def linear(pair: tuple[Matrix, Tensor]) -> Linear:
        return Linear(held(pair[0], mode), pair[1])

    last = None
    if projection is not None:
        last = Linear(widened(projection[0], mode) if mode == torch.int8 else held(projection[0], mode), projection[1])
    pairs = [(linear(transform), linear(gate)) for transform, gate in highways]
    return CompiledTokens(library, characters, filters, pairs, last, pad=pad, activation=activation, word_dim=word_dim)


def arithmetic(mode: torch.dtype) -> str:
    """How this machine multiplies in a mode, in words that are the same where a model's vectors are."""
    library, name = c_library(), str(mode).removeprefix("torch.")
    if mode not in (torch.bfloat16, torch.int8):
        return name
    if library is None:
        return f"float32 with {name} weights"
    if mode == torch.bfloat16:
        return f"bfloat16 in C, {('as int16', 'by vectors', 'by tiles')[library.elmokit_halves()]}"
    return f"int8 in C, activations of {8 if library.elmokit_most() > STEPS else 7} bits"


class TorchLstm(nn.Module):
    """The plain recurrence with copies of the recurrent matrices, made when first needed, that suit few rows.

    Blocked for oneDNN they are about 1.4 times as fast for 2 to 64 rows, transposed nearly twice for one row.
    """

    def __init__(self, weights: LstmWeights, rules: LstmRules) -> None:
        super().__init__()
        self.weights, self.rules = weights, rules

    @cached_property
    def transposed(self) -> Tensor:
        return self.weights.h.transpose(1, 2).contiguous()  # (R, P, 4H)

    @cached_property
    def blocked(self) -> list[Tensor]:
        return [torch.ops.mkldnn._reorder_linear_weight(matrix, None) for matrix in self.weights.h]

    @torch.no_grad()
    def forward(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        add = self._add if has_onednn() else None
        return reference_lstm(x, self.weights, state, steps, self.rules, keep=keep, recurrent=add)

    def _add(self, gates: Tensor, h: Tensor) -> Tensor:
        """h (R, rows, P) times the matrices, added to the gates (R, rows, 4H)."""
        if h.shape[1] == 1:
            return torch.baddbmm(gates, h, self.transposed)
        for rows, matrix, out in zip(_even(h).unbind(), self.blocked, gates.unbind(), strict=True):
            made = torch.ops.mkldnn._linear_pointwise.default(rows, matrix, None, "none", [], "")
            out.add_(made[: len(out)])
        return gates


def _even(x: Tensor) -> Tensor:
    """Many rows (R, M, K) filled up to a multiple of 16: oneDNN compiles and keeps code for each number it meets."""
    rows = x.shape[1]
    return x if rows <= FEW_ROWS or rows % BLOCK == 0 else torch.nn.functional.pad(x, (0, 0, 0, -rows % BLOCK))


def has_onednn() -> bool:
    """Whether torch was built with oneDNN for this kind of processor."""
    return torch._C._has_mkldnn and platform.machine().lower() in ("x86_64", "amd64")


def has_bfloat16() -> bool:
    """Whether torch multiplies bfloat16 fast here."""
    found = torch.cpu.get_capabilities()
    return has_onednn() and any(found.get(name) for name in ("avx512_bf16", "amx_bf16"))
