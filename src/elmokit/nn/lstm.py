"""One layer of the clipped, projected LSTM for all directions at once (Sak et al. 2014, with the published clips)."""

import torch
from torch import Tensor, nn

from elmokit.kernels import LstmState, LstmWeights, clipped_lstm
from elmokit.shape import LstmConfig as LstmConfig


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
