"""The recurrence, the character convolutions and the rows of the sampled softmax: which kernel runs is chosen here.

On CUDA with Triton the fused kernels run, elsewhere plain torch. The environment variable ELMOKIT_KERNEL overrides
that: `reference` for plain torch, `triton` for the fused kernels (an error if they cannot run). Inference on a CPU has
kernels of its own, in `elmokit.kernels.cpu`.
"""

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.kernels.char_cnn import Activation, Filter, reference_char_cnn
from elmokit.kernels.reference import LstmRules, LstmState, LstmWeights, Recurrence, reference_lstm

__all__ = [
    "Activation", "Filter", "LstmRules", "LstmState", "LstmWeights", "Recurrence", "char_cnn", "clipped_lstm",
    "reference_char_cnn", "reference_lstm",
]  # fmt: skip

FUSED_STEP = True  # a training step's elementwise work in fused kernels; ELMOKIT_FUSED_STEP (0 or 1) overrides this
_FUSED_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def clipped_lstm(
    x: Tensor,
    weights: LstmWeights,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    *,
    keep: Tensor | None = None,
) -> tuple[Tensor, LstmState]:
    """One LSTM layer, all directions (see `Recurrence`). Computes in the type of `x`; the rest may be wider."""
    if fused(x):
        from elmokit.kernels.triton.lstm import triton_lstm

        return triton_lstm(x, weights, state, steps, rules, keep=keep)
    w_x, w_h, bias, w_p = weights
    same = LstmWeights(w_x.to(x.dtype), w_h.to(x.dtype), bias.to(x.dtype), None if w_p is None else w_p.to(x.dtype))
    given = LstmState(*(part.to(x.dtype) for part in state))
    out, last = reference_lstm(x, same, given, steps, rules, keep=keep)
    return out, LstmState(last.h.to(state.h.dtype), last.c.to(state.c.dtype))


def char_cnn(
    chars: Tensor, table: Tensor, filters: Sequence[Filter], activation: Activation, *, pad: int | None
) -> Tensor:
    """Word types (U, C) to (U, sum of filters): convolutions, maximum over positions, activation.

    `pad` is the id that fills rows after a word's end; None if there is none. It only saves work: the values are those
    of all positions.
    """
    if fused(table):
        from elmokit.kernels.triton.char_cnn import triton_char_cnn

        return triton_char_cnn(chars, table, filters, activation, pad=pad)
    return reference_char_cnn(chars, table, filters, activation, pad=pad)


def fused(tensor: Tensor) -> bool:
    """Whether the fused kernels run on this tensor."""
    wish = _wish()
    able = tensor.is_cuda and tensor.dtype in _FUSED_TYPES and _triton_present()
    if wish == "triton" and not able:
        raise ConfigError(
            f"ELMOKIT_KERNEL is 'triton', but the fused kernels cannot run on a {tensor.dtype} tensor on "
            f"{tensor.device} here: they need CUDA, float32, bfloat16 or float16, and the triton package; unset it"
        )
    return able and wish != "reference"


def fused_step(tensor: Tensor) -> bool:
    """Whether the elementwise work of a training step on this tensor runs in the fused kernels, too."""
    return step_wanted() and fused(tensor)


def step_wanted() -> bool:
    """Whether a training step's elementwise work is to run in fused kernels, where those run at all."""
    return os.environ.get("ELMOKIT_FUSED_STEP", "1" if FUSED_STEP else "0") != "0"


def _wish() -> str:
    wish = os.environ.get("ELMOKIT_KERNEL", "")
    if wish not in ("", "reference", "triton"):
        raise ConfigError(f"ELMOKIT_KERNEL is {wish!r}, expected 'reference', 'triton' or nothing; unset it")
    return wish


@cache
def _triton_present() -> bool:
    return find_spec("triton") is not None


ROW_LIMIT = 32768  # scores of one row that a kernel holds at once


def softmax_rows_(scores: Tensor, shift: Tensor, ids: Tensor, targets: Tensor, own: Tensor) -> Tensor:
    """Overwrites scores (n, S) with each row's softmax([own ; scores + shift]) without `own`; returns log sums (n,).

    A column whose id is the row's target is an accidental hit and counts as minus infinity.
    """
    if scores.is_cuda and scores.shape[1] <= ROW_LIMIT:
        from elmokit.kernels.triton.softmax import triton_softmax_rows_  # Triton comes with torch's CUDA builds only

        return triton_softmax_rows_(scores, shift, ids, targets, own)
    full = scores.to(shift.dtype) + shift  # (n, S)
    full.masked_fill_(ids[None, :] == targets[:, None], -torch.inf)
    log_sum = torch.logaddexp(torch.logsumexp(full, dim=1), own)  # (n,)
    scores.copy_((full - log_sum[:, None]).exp_())
    return log_sum
