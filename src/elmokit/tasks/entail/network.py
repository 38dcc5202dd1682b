"""ESIM, the enhanced sequential inference model (Chen et al. 2017), for any two texts and a label between them.

With ELMo at the input and at the output of the first LSTM: Peters et al. 2018, sections 5.2 and appendix.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import Share, Size, setting
from elmokit.nn.padded import SharedDropout, align, pool_max, pool_mean, run_recurrent


@dataclass(frozen=True, slots=True)
class EsimConfig:
    hidden: Size = setting(300, "LSTM cells in each direction, and the width of the projection and the classifier")
    dropout: Share = setting(0.5, "dropout on the input of each part of the network")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two texts of each pair of a batch."""

    vectors: Tensor  # (B, T, width)
    at_output: Tensor  # (B, T, output_width), joins the encoder's output: ELMo there, or of width 0
    mask: Tensor  # (B, T) bool


class Esim(nn.Module):
    """Word vectors of a batch of pairs to a score for each label."""

    def __init__(self, config: EsimConfig, *, width: int, output_width: int, n_labels: int) -> None:
        super().__init__()
        self.shared_dropout = SharedDropout(config.dropout)
        self.encoder = nn.LSTM(width, config.hidden, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(4 * (2 * config.hidden + output_width), config.hidden)
        self.composition = nn.LSTM(config.hidden, config.hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(8 * config.hidden, config.hidden),
            nn.Tanh(),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, n_labels),
        )

    def forward(self, premise: Side, hypothesis: Side) -> Tensor:
        """A score for each label. (B, K)"""
        a, b = self._encode(premise), self._encode(hypothesis)  # (B, S, E), (B, T, E)
        scores = a @ b.transpose(1, 2)  # (B, S, T)
        a_other = align(scores, b, hypothesis.mask)  # (B, S, E)
        b_other = align(scores.transpose(1, 2), a, premise.mask)  # (B, T, E)
        pooled = [*self._compose(a, a_other, premise.mask), *self._compose(b, b_other, hypothesis.mask)]
        found: Tensor = self.classifier(torch.cat(pooled, dim=-1))  # (B, K)
        return found

    def _encode(self, side: Side) -> Tensor:
        encoded = run_recurrent(self.encoder, self.shared_dropout(side.vectors), side.mask.sum(dim=1))  # (B, T, 2 H)
        return torch.cat([encoded, side.at_output], dim=-1)  # (B, T, E)

    def _compose(self, own: Tensor, other: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What one text has become beside the other, pooled: its mean and its greatest. (B, 2 H) each"""
        enhanced = torch.cat([own, other, own - other, own * other], dim=-1)  # (B, T, 4 E)
        projected = self.shared_dropout(torch.relu(self.projection(enhanced)))  # (B, T, H)
        composed = run_recurrent(self.composition, projected, mask.sum(dim=1))  # (B, T, 2 H)
        return pool_mean(composed, mask), pool_max(composed, mask)
