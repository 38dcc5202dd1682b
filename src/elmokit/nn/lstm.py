"""One layer of the clipped, projected LSTM for all directions at once (Sak et al. 2014, with the published clips)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import Clip, Size, check
from elmokit.errors import ConfigError
from elmokit.kernels import LstmRules, LstmState, LstmWeights, clipped_lstm


@dataclass(frozen=True, slots=True)
class LstmConfig:
    """Every layer is alike: `projection_dim` in, `projection_dim` out, `cell_dim` inside."""

    cell_dim: Size = 4096
    projection_dim: Size = 512
    project: bool = True  # False: the output is the cell's own, unclipped, and cell_dim == projection_dim
    cell_clip: Clip = 3.0
    proj_clip: Clip = 3.0
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        check(self)
        if not self.project and self.cell_dim != self.projection_dim:
            raise ConfigError(f"without projection, cell_dim {self.cell_dim} must equal {self.projection_dim}")

    @property
    def rules(self) -> LstmRules:
        return LstmRules(self.cell_clip or None, self.proj_clip or None, self.forget_bias)


class LstmLayer(nn.Module):
    """Parameters of R directions stacked, gate blocks in the order i, j, f, o."""

    def __init__(self, config: LstmConfig, *, directions: int) -> None:
        super().__init__()
        self.config = config
        gates, width = 4 * config.cell_dim, config.projection_dim
        self.weight_x = nn.Parameter(torch.empty(directions, gates, width))  # (R, 4H, P)
        self.weight_h = nn.Parameter(torch.empty(directions, gates, width))  # (R, 4H, P)
        self.bias = nn.Parameter(torch.zeros(directions, gates))  # (R, 4H)
        shape = (directions, width, config.cell_dim)
        self.projection = nn.Parameter(torch.empty(shape)) if config.project else None  # (R, P, H)

    def forward(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        """Packed input (R, N, P) to packed output (R, N, P); see elmokit.kernels.reference."""
        weights = LstmWeights(self.weight_x, self.weight_h, self.bias, self.projection)
        return clipped_lstm(x, weights, state, steps, self.config.rules, keep=keep)
