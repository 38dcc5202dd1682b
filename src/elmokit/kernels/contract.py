"""The one contract that every recurrence kernel fulfils, and the packed layout it works in.

A kernel runs one LSTM layer for all directions at once. Sequences are *packed* time-major: rows are sorted by length,
longest first, and step t holds the `steps[t]` rows still running, so finished sentences leave the batch and padding is
never computed. The backward direction's input is reversed beforehand (each sentence at its own length), so that every
direction runs left to right here. A dense block of B rows and T steps is the special case `steps = (B,) * T`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor


class LstmWeights(NamedTuple):
    """One layer, R directions stacked. Gate blocks in the order of the official files: i, j (candidate), f, o."""

    x: Tensor  # (R, 4H, D) input to gates
    h: Tensor  # (R, 4H, P) previous output to gates
    bias: Tensor  # (R, 4H), without the forget bias
    projection: Tensor | None  # (R, P, H); None: the output is the cell's own, P == H, and is not clipped


@dataclass(frozen=True, slots=True)
class LstmRules:
    """What the numbers mean: clips (None: none) and the constant added to the forget gate's pre-activation."""

    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    forget_bias: float = 1.0


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
