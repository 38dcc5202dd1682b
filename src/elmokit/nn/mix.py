"""The scalar mix: ELMo_k = gamma * sum_j softmax(w)_j h_kj (Peters et al. 2018, section 3.2)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerStack

LAYER_NORM_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class MixConfig:
    """How layers become one vector. `weights` are before the softmax; None means all 0."""

    n_layers: int = 3
    weights: tuple[float, ...] | None = None
    gamma: float = 1.0
    trainable: bool = True
    # One mean and variance per layer over all real tokens of the batch; AllenNLP counts sentence boundaries in,
    # bilm-tf not.
    layer_norm: Literal["none", "allennlp", "bilm"] = "none"
    epsilon: float = LAYER_NORM_EPSILON
    dropout: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        if self.weights is not None and len(self.weights) != self.n_layers:
            raise ConfigError(f"{len(self.weights)} mix weights given for {self.n_layers} layers")
        if self.layer_norm not in ("none", "allennlp", "bilm"):
            raise ConfigError(f"layer_norm {self.layer_norm!r} is not known; expected none, allennlp or bilm")


class ScalarMix(nn.Module):
    """A trained (or fixed) weighted sum of layers; the output has no boundary positions."""

    def __init__(self, config: MixConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or MixConfig()
        start = torch.tensor(config.weights if config.weights is not None else [0.0] * config.n_layers)
        self.weights = nn.Parameter(start, requires_grad=config.trainable)  # (L,)
        self.gamma = nn.Parameter(torch.tensor([config.gamma]), requires_grad=config.trainable)

    @property
    def shares(self) -> Tensor:
        """The softmax weights s_j. (L,)"""
        return torch.softmax(self.weights, dim=0)

    def penalty(self) -> Tensor:
        """The L2 term to add to a task's loss: l2 * sum w^2 on the raw weights."""
        return self.config.l2 * self.weights.square().sum()

    def forward(self, stack: LayerStack) -> Tensor:
        if len(stack.values) != len(self.weights):
            raise InputError(f"a mix of {len(self.weights)} layers was given a stack of {len(stack.values)}")
        if self.config.layer_norm == "bilm":
            stack = stack.inner()
        values = stack.values  # (L, B, T, D)
        if self.config.layer_norm != "none":
            values = normalise(values, stack.mask, epsilon=self.config.epsilon)
        mixed = self.gamma * torch.einsum("l,lbtd->btd", self.shares.to(values.dtype), values)
        mixed = LayerStack(mixed[None], stack.mask, ("mix",), stack.bounded).inner().values[0]  # (B, T, D)
        return nn.functional.dropout(mixed, self.config.dropout, self.training)


def normalise(values: Tensor, mask: Tensor, *, epsilon: float) -> Tensor:
    """Each layer to mean 0, variance 1 over all its unmasked numbers in the batch; zero where masked. (L, B, T, D)"""
    real = mask[None, ..., None].to(values.dtype)  # (1, B, T, 1)
    count = real.sum() * values.shape[-1]
    mean = (values * real).sum(dim=(1, 2, 3), keepdim=True) / count  # (L, 1, 1, 1)
    variance = ((values - mean) * real).square().sum(dim=(1, 2, 3), keepdim=True) / count
    return (values - mean) / (variance + epsilon).sqrt() * real
