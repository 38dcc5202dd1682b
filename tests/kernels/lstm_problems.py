"""Random recurrences of any shape for the kernel tests."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from elmokit.kernels import LstmRules, LstmState, LstmWeights


@dataclass(frozen=True, slots=True)
class Problem:
    steps: tuple[int, ...]
    R: int = 2
    D: int = 5
    H: int = 8
    P: int | None = 4  # None: no projection
    keep: bool = False
    idle: int = 0  # rows that never run
    rules: LstmRules = field(default_factory=lambda: LstmRules(0.6, 0.5, 1.0))  # tight: both clips are at work

    def parts(self) -> list[Tensor | None]:
        """x, the four weights, h and c, in float64."""
        torch.manual_seed(len(self.steps) + self.H)
        R, D, H, P, N, B = self.R, self.D, self.H, self.P or self.H, sum(self.steps), self.steps[0] + self.idle
        shapes = [(R, N, D), (R, 4 * H, D), (R, 4 * H, P), (R, 4 * H), (R, P, H), (R, B, P), (R, B, H)]
        drawn: list[Tensor | None] = [0.6 * torch.randn(shape, dtype=torch.float64) for shape in shapes]
        if self.P is None:
            drawn[4] = None
        return drawn

    def kept(self) -> Tensor | None:
        """0 for about a third of the positions."""
        if not self.keep:
            return None
        torch.manual_seed(11)
        return (torch.rand(self.R, sum(self.steps)) > 0.3).double()

    def arguments(
        self, parts: list[Tensor | None]
    ) -> tuple[Tensor, LstmWeights, LstmState, tuple[int, ...], LstmRules]:
        x, w_x, w_h, bias, w_p, h, c = parts
        assert x is not None
        assert w_x is not None
        assert w_h is not None
        assert bias is not None
        assert h is not None
        assert c is not None
        return x, LstmWeights(w_x, w_h, bias, w_p), LstmState(h, c), self.steps, self.rules
