"""The biattentive classification network (McCann et al. 2017, section 5; with ELMo: Peters et al. 2018, appendix).

A single sentence is both of the network's inputs, so its two sides differ only in their integrating LSTMs: the
encoder is shared as published, and the attention of the sentence to itself is the same seen from either side.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.config import Share, Size, setting
from elmokit.errors import ConfigError
from elmokit.nn.padded import attend, masked_softmax, pool_max, pool_mean, pool_min, run_recurrent

POOLS = 4  # max, mean, min, self-attentive


@dataclass(frozen=True, slots=True)
class BcnConfig:
    """McCann et al. end with a batch-normalised maxout network; Peters et al. found two ReLU layers to do better."""

    hidden: Size = setting(300, "width of the ReLU layer, and LSTM cells in each direction")
    integrators: int = setting(2, "integrating LSTMs: 2 as published, or 1 for a quicker network")
    head: Literal["maxout", "relu"] = setting("maxout", "last layers of the network: three of maxout, or two of ReLU")
    head_width: Size = setting(600, "width of the head's first layer; its second has half")
    dropout: Share = setting(0.3, "dropout between the parts of the network")

    def __post_init__(self) -> None:
        if self.head not in ("maxout", "relu"):
            raise ConfigError(f"head is {self.head!r}; expected maxout or relu")
        if self.integrators not in (1, 2):
            raise ConfigError(f"integrators is {self.integrators}; expected 2 as published, or 1")


class Bcn(nn.Module):
    """Word vectors of a batch of sentences to a score for each label.

    `width` is that of the words, `output_width` that of what joins the encoder's output: ELMo there, or 0.
    """

    def __init__(self, config: BcnConfig, *, width: int, output_width: int, n_labels: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.feedforward = nn.Linear(width, config.hidden)
        self.encoder = nn.LSTM(config.hidden, config.hidden, batch_first=True, bidirectional=True)
        encoded = 2 * config.hidden + output_width
        self.integrators = nn.ModuleList(
            Integrator(3 * encoded, config.hidden, dropout=config.dropout) for _ in range(config.integrators)
        )
        widths = (config.integrators * POOLS * 2 * config.hidden, config.head_width, config.head_width // 2, n_labels)
        head = MaxoutHead if config.head == "maxout" else ReluHead
        self.head = head(widths, dropout=config.dropout)

    def forward(self, words: Tensor, at_output: Tensor, mask: Tensor) -> Tensor:
        """(B, T, width), (B, T, output_width) and (B, T) to (B, K)"""
        read = self.dropout(torch.relu(self.feedforward(words)))  # (B, T, H)
        context = run_recurrent(self.encoder, read, mask.sum(dim=1))  # (B, T, 2 H)
        encoded = self.dropout(torch.cat([context, at_output], dim=-1))  # (B, T, E)
        around = attend(encoded, mask)  # (B, T, E)
        joined = torch.cat([encoded, encoded - around, encoded * around], dim=-1)  # (B, T, 3 E)
        pooled = [integrate(joined, mask) for integrate in self.integrators]
        scores: Tensor = self.head(torch.cat(pooled, dim=-1))  # (B, K)
        return scores


class Integrator(nn.Module):
    """One side behind the biattention: an LSTM over what was attended to, pooled in four ways."""

    def __init__(self, width: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.attend = nn.Linear(2 * hidden, 1)

    def forward(self, joined: Tensor, mask: Tensor) -> Tensor:
        """(B, T, 3 E) to (B, 8 H)"""
        values = self.dropout(run_recurrent(self.lstm, joined, mask.sum(dim=1)))  # (B, T, 2 H)
        weights = masked_softmax(self.attend(values)[..., 0], mask)  # (B, T)
        attended = (weights[:, None] @ values)[:, 0]  # (B, 2 H)
        return torch.cat([pool_max(values, mask), pool_mean(values, mask), pool_min(values, mask), attended], dim=-1)


class MaxoutHead(nn.Module):
    """Layers that are each the greatest of several linear maps of their batch-normalised input."""

    PIECES = 4

    def __init__(self, widths: tuple[int, ...], *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.norms = nn.ModuleList(BatchNorm(width) for width in widths[:-1])
        self.layers = nn.ModuleList(nn.Linear(a, b * self.PIECES) for a, b in pairwise(widths))

    def forward(self, values: Tensor) -> Tensor:
        """(B, width) to (B, K)"""
        for norm, layer in zip(self.norms, self.layers, strict=True):
            pieces = layer(self.dropout(norm(values))).unflatten(-1, (-1, self.PIECES))  # (B, width, pieces)
            values = pieces.amax(dim=-1)  # (B, width)
        return values


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that lets a batch of one through in training, by the statistics gathered so far."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or len(values) > 1:
            return super().forward(values)
        return nn.functional.batch_norm(
            values, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


class ReluHead(nn.Module):
    """Linear maps with ReLU between them."""

    def __init__(self, widths: tuple[int, ...], *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, values: Tensor) -> Tensor:
        """(B, width) to (B, K)"""
        for layer in self.layers[:-1]:
            values = torch.relu(layer(self.dropout(values)))  # (B, width)
        scores: Tensor = self.layers[-1](self.dropout(values))  # (B, K)
        return scores
