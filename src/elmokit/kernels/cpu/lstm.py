"""The recurrence on a CPU, without gradients: everything in float32 but the products, which come in several kinds.

A step of one sentence is a handful of numbers, so what counts there is how many calls it takes and how much of the
matrices the cache keeps from step to step: the directions run side by side where that is all of them, each call but the
products' working on both, else one after the other. A step overwrites its own gates. Input products are hoisted for a
stretch of steps that fits into the cache. tanh(x) is taken as 1 - 2 sigmoid(-2x), equal to 1e-7: one sigmoid then does
all four gates, and costs a third of what the libraries' tanh does.
"""

import torch
from torch import Tensor

from elmokit.kernels.contract import LstmRules, LstmState, LstmWeights
from elmokit.kernels.cpu.products import FloatProduct, Product
from elmokit.kernels.reference import stretches

STRETCH_BYTES = 16 << 20  # of hoisted input products
TOGETHER_BYTES = 8 << 20  # of matrices read in a step, for directions to run side by side


class CpuLstm:
    """One layer, all directions; called like a `Recurrence`, without weights and rules."""

    def __init__(
        self, input: Product, recurrent: Product, bias: Tensor, projection: Product | None, rules: LstmRules
    ) -> None:
        self.input, self.recurrent, self.projection, self.rules = input, recurrent, projection, rules
        H = bias.shape[1] // 4
        self.bias = bias.float()[:, None].clone()  # (R, 1, 4H) the forget bias included
        self.bias[..., 2 * H : 3 * H] += rules.forget_bias
        self.turn = torch.tensor(-2.0)  # a tensor, since a number would be made one in each call

    @torch.no_grad()
    def __call__(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        h, c = state.h.float().clone(), state.c.float().clone()  # (R, B, P), (R, B, H)
        out = x.new_empty(*x.shape[:2], h.shape[2], dtype=torch.float32)  # (R, N, P)
        R, P, H = len(c), h.shape[2], c.shape[2]
        read = R * H * P * (4 if self.projection is None else 5) * self.recurrent.itemsize
        together = R if read <= TOGETHER_BYTES else 1
        for first in range(0, R, together):
            some = slice(first, first + together)
            self._run(first, x[some], h[some], c[some], out[some], steps, None if keep is None else keep[some])
        return out, LstmState(h, c)

    def _run(
        self, first: int, x: Tensor, h: Tensor, c: Tensor, out: Tensor, steps: tuple[int, ...], keep: Tensor | None
    ) -> None:
        """Some directions, from `first` on: fills `out` (r, N, P); `h` (r, B, P) and `c` (r, B, H) become the last."""
        R, _, H = c.shape
        running = steps[0] if steps else 0
        before, cell, at = h[:, :running], c[:, :running], 0
        for stretch in stretches(steps, STRETCH_BYTES // (16 * H * R)):
            ready = self.input.affine(x[:, at : at + sum(stretch)], self.bias[first : first + R], first)  # (R, n, 4H)
            for rows, gates in zip(stretch, torch.split(ready, stretch, dim=1), strict=True):
                if rows < running:  # the shortest remaining sentences ended at the step before
                    h[:, rows:running] = before[:, rows:]
                    before, cell, running = before[:, :rows], c[:, :rows], rows
                if keep is not None:
                    kept = keep[:, at : at + rows, None]  # (R, rows, 1)
                    before = before * kept
                    cell.mul_(kept)
                if at > 0 or before.any():
                    self.recurrent.add(before, gates, first)  # (R, rows, 4H)
                before = out[:, at : at + rows]
                self._step(first, gates, cell, before)
                at += rows
        h[:, :running] = before[:, :running]

    def _step(self, first: int, gates: Tensor, cell: Tensor, out: Tensor) -> None:
        """From the gates' sums (R, rows, 4H) to the next cell (R, rows, H), in place, and the output (R, rows, P)."""
        rules = self.rules
        i, j, f, o = gates.chunk(4, dim=2)  # (R, rows, H) each
        j.mul_(self.turn)
        gates.sigmoid_()
        torch.addcmul(i, i, j, value=-2, out=i)  # sigmoid(i) * tanh(j)
        torch.addcmul(i, f, cell, out=cell)
        if rules.cell_clip is not None:
            cell.clamp_(-rules.cell_clip, rules.cell_clip)
        torch.mul(cell, self.turn, out=j).sigmoid_()
        torch.addcmul(o, o, j, value=-2, out=o)  # sigmoid(o) * tanh(cell)
        if self.projection is None:
            out.copy_(o)
            return
        self.projection.project(o, out, first)
        if rules.proj_clip is not None:
            out.clamp_(-rules.proj_clip, rules.proj_clip)


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
    out = None if w_p is None else FloatProduct(list(w_p))
    layer = CpuLstm(FloatProduct(list(w_x)), FloatProduct(list(w_h)), bias, out, rules)
    return layer(x, state, steps, keep=keep)
