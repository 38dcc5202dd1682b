"""The contract that every recurrence kernel fulfils, and the recurrence in plain torch, which they are compared with.

A kernel runs one LSTM layer for all directions at once. Sequences are *packed* time-major: rows are sorted by length,
longest first, and step t holds the `steps[t]` rows still running, so padding is never computed. The input of the
backward direction is reversed beforehand, each sentence at its own length, so every direction runs left to right here.
A dense block of B rows and T steps is the special case `steps = (B,) * T`.

The input product needs no state, so a stretch of steps shares one large matrix product. Without gradients the stretch
is bounded: a sentence of any length runs in bounded memory.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from elmokit.shape import LstmRules as LstmRules

STRETCH = 4096  # packed positions whose input products are held at once when no gradient is needed


class LstmWeights(NamedTuple):
    """One layer, R directions stacked. Gate blocks in the order of the official files: i, j (candidate), f, o."""

    x: Tensor  # (R, 4H, D) input to gates
    h: Tensor  # (R, 4H, P) previous output to gates
    bias: Tensor  # (R, 4H), without the forget bias
    projection: Tensor | None  # (R, P, H); None: the output is the cell's own, P == H, and is not clipped


class LstmState(NamedTuple):
    """What a row carries to its next step: the clipped, projected output and the clipped cell."""

    h: Tensor  # (R, B, P)
    c: Tensor  # (R, B, H)


class Recurrence(Protocol):
    """c = clip(sigmoid(f + forget_bias) * c + sigmoid(i) * tanh(j));  h = clip((sigmoid(o) * tanh(c)) projection^T).

    `x` is (R, N, D) packed, N = sum(steps). `keep`, where given, is (R, N), 0 or 1: the state is multiplied by it
    before the step, so a 0 restarts that row. Returns the outputs (R, N, P) and each row's state after its last step.
    """

    def __call__(
        self,
        x: Tensor,
        weights: LstmWeights,
        state: LstmState,
        steps: tuple[int, ...],
        rules: LstmRules,
        *,
        keep: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]: ...


def reference_lstm(
    x: Tensor,
    weights: LstmWeights,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    *,
    keep: Tensor | None = None,
    recurrent: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, LstmState]:
    """`recurrent` (gates, h) multiplies h by the recurrent matrices, adds the gates and may overwrite them."""
    h, c = state  # (R, B, P), (R, B, H)
    if not steps:  # no sentences
        return x.new_zeros(len(x), 0, h.shape[2]), state
    w_x, w_h = weights.x.transpose(1, 2), weights.h.transpose(1, 2)  # (R, D, 4H), (R, P, 4H)
    w_p = None if weights.projection is None else weights.projection.transpose(1, 2)  # (R, H, P)
    bias = weights.bias.unsqueeze(1)  # (R, 1, 4H)
    outputs, ended_h, ended_c = [], [], []
    start = 0
    for stretch in stretches(steps, None if torch.is_grad_enabled() else STRETCH):
        width = sum(stretch)
        products = torch.baddbmm(bias, x[:, start : start + width], w_x)  # (R, n, 4H)
        at = 0
        # `split`, whose gradient is one concatenation; that of a slice would be a whole `products` of zeros per step.
        for rows, product in zip(stretch, torch.split(products, stretch, dim=1), strict=True):
            if rows < h.shape[1]:  # the shortest remaining sentences ended at the step before
                ended_h.append(h[:, rows:])
                ended_c.append(c[:, rows:])
                h, c = h[:, :rows], c[:, :rows]
            if keep is not None:
                kept = keep[:, start + at : start + at + rows, None]  # (R, rows, 1)
                h, c = h * kept, c * kept
            gates = torch.baddbmm(product, h, w_h) if recurrent is None else recurrent(product, h)  # (R, rows, 4H)
            i, j, f, o = gates.chunk(4, dim=2)
            c = torch.sigmoid(f + rules.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)  # (R, rows, H)
            if rules.cell_clip is not None:
                c = c.clamp(-rules.cell_clip, rules.cell_clip)
            h = (torch.sigmoid(o) * torch.tanh(c)).to(x.dtype)  # cells of a half-precision model are float32
            if w_p is not None:
                h = torch.bmm(h, w_p)  # (R, rows, P)
                if rules.proj_clip is not None:
                    h = h.clamp(-rules.proj_clip, rules.proj_clip)
            outputs.append(h)
            at += rows
        start += width
    last = LstmState(torch.cat([h, *reversed(ended_h)], dim=1), torch.cat([c, *reversed(ended_c)], dim=1))
    return torch.cat(outputs, dim=1), last


def stretches(steps: tuple[int, ...], most: int | None) -> list[list[int]]:
    """The steps in runs of at most so many positions, or of one step; one run if there is no limit."""
    runs: list[list[int]] = [[]]
    width = 0
    for rows in steps:
        if most is not None and runs[-1] and width + rows > most:
            runs.append([])
            width = 0
        runs[-1].append(rows)
        width += rows
    return runs
