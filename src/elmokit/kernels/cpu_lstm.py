"""The recurrence on a CPU, without gradients: everything in float32 but the products, which come in several kinds.

One direction runs after the other, and each step's numbers are overwritten by the next one's: at one sentence a step
costs what reading its matrices costs, and those of one direction, narrowed to int8, stay in the cache from step to
step. Input products are hoisted for a stretch of steps that fits into the cache too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from elmokit.kernels.contract import LstmRules, LstmState, LstmWeights
from elmokit.kernels.products import FloatProduct, Matrix, Product, cpu_product
from elmokit.kernels.reference import stretches

STRETCH_BYTES = 16 << 20  # of hoisted input products


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction's weights, ready to multiply."""

    input: Product  # (4H, D)
    recurrent: Product  # (4H, P)
    bias: Tensor  # (4H,) the forget bias included
    projection: Product | None  # (P, H)


class CpuLstm:
    """One layer, all directions; called like a `Recurrence` whose weights and rules are settled."""

    def __init__(self, directions: Sequence[Direction], rules: LstmRules) -> None:
        self.directions, self.rules = directions, rules

    @torch.no_grad()
    def __call__(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        h, c = state.h.float().clone(), state.c.float().clone()  # (R, B, P), (R, B, H)
        out = x.new_empty(*x.shape[:2], h.shape[2], dtype=torch.float32)  # (R, N, P)
        for r, direction in enumerate(self.directions):
            self._run(direction, x[r], h[r], c[r], out[r], steps, None if keep is None else keep[r])
        return out, LstmState(h, c)

    def _run(
        self,
        direction: Direction,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        out: Tensor,
        steps: tuple[int, ...],
        keep: Tensor | None,
    ) -> None:
        """Fills `out` (N, P); `h` (B, P) and `c` (B, H) become each row's last."""
        H, rules = c.shape[1], self.rules
        running = steps[0] if steps else 0
        before, at = h[:running], 0
        for stretch in stretches(steps, STRETCH_BYTES // (16 * H)):
            ready = direction.input.affine(x[at : at + sum(stretch)], direction.bias)  # (n, 4H)
            for rows, gates in zip(stretch, torch.split(ready, stretch), strict=True):
                if rows < running:  # the shortest remaining sentences ended at the step before
                    h[rows:running] = before[rows:]
                    before, running = before[:rows], rows
                cell = c[:rows]
                if keep is not None:
                    kept = keep[at : at + rows, None]  # (rows, 1)
                    before = before * kept
                    cell.mul_(kept)
                if at > 0 or before.any():
                    gates = direction.recurrent.add(before, gates)  # (rows, 4H)
                new, passes = gates[:, :H].sigmoid_(), gates[:, 2 * H :].sigmoid_()  # i; f and o
                cell.mul_(passes[:, :H]).addcmul_(new, gates[:, H : 2 * H].tanh_())  # (rows, H)
                if rules.cell_clip is not None:
                    cell.clamp_(-rules.cell_clip, rules.cell_clip)
                u = torch.tanh(cell).mul_(passes[:, H:])  # (rows, H)
                before = out[at : at + rows]
                if direction.projection is None:
                    before.copy_(u)
                else:
                    direction.projection.project(u, before)
                    if rules.proj_clip is not None:
                        before.clamp_(-rules.proj_clip, rules.proj_clip)
                at += rows
        h[:running] = before[:running]


def prepare_lstm(
    w_x: Sequence[Matrix],
    w_h: Sequence[Matrix],
    bias: Tensor,
    projection: Sequence[Matrix] | None,
    rules: LstmRules,
    mode: torch.dtype,
) -> CpuLstm:
    """A layer whose matrices are given per direction, laid out once for many runs in this mode."""
    make = partial(cpu_product, mode=mode)
    outs = [None] * len(bias) if projection is None else [make(matrix) for matrix in projection]
    parts = zip(w_x, w_h, _with_forget(bias, rules), outs, strict=True)
    return CpuLstm([Direction(make(a), make(b, packs=True), c, d) for a, b, c, d in parts], rules)


def cpu_lstm(
    x: Tensor,
    weights: LstmWeights,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    *,
    keep: Tensor | None = None,
) -> tuple[Tensor, LstmState]:
    """float32 with the weights where they lie: the `Recurrence` for those who keep no prepared layer."""
    w_x, w_h, bias, w_p = weights
    outs = [None] * len(bias) if w_p is None else [FloatProduct(matrix) for matrix in w_p]
    parts = zip(w_x, w_h, _with_forget(bias, rules), outs, strict=True)
    layer = CpuLstm([Direction(FloatProduct(a), FloatProduct(b), c, d) for a, b, c, d in parts], rules)
    return layer(x, state, steps, keep=keep)


def _with_forget(bias: Tensor, rules: LstmRules) -> Tensor:
    H = bias.shape[1] // 4
    moved = bias.float().clone()  # (R, 4H)
    moved[:, 2 * H : 3 * H] += rules.forget_bias
    return moved
