"""Optimizers and the learning-rate schedule."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.pretrain._muon import Muon, inner_matrices
from elmokit.pretrain.config import PretrainConfig


def build_optimizer(config: PretrainConfig, module: nn.Module, *, cuda: bool) -> torch.optim.Optimizer:
    """AdamW with decay on matrices only, Muon beside it, or Adagrad with its accumulator starting at 1 as published."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(parameters, lr=config.learning_rate, initial_accumulator_value=1.0)
    decayed = [p for p in parameters if p.ndim > 1]
    others = [p for p in parameters if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    rate: float | Tensor = config.learning_rate
    if cuda:  # a rate on the device can change between replays of a captured step
        rate = torch.tensor(config.learning_rate, device=parameters[0].device)
    options: dict[str, Any] = {"lr": rate, "betas": (0.9, 0.98), "eps": 1e-8, "fused": cuda, "capturable": cuda}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **options)
    stacked = {p: n for p, n in inner_matrices(module) if p.requires_grad}
    groups[0]["params"] = [p for p in decayed if p not in stacked]
    inner = {"params": list(stacked), "stacked": list(stacked.values()), "orthogonal": True}
    return Muon([*groups, {**inner, "weight_decay": config.weight_decay}], **options)


def rate_at(progress: float, config: PretrainConfig) -> float:
    """The learning rate after a share of the run (Adagrad: constant).

    It rises in a line, then falls in a cosine to `final_rate`; or it stays at its peak and falls in a line over the
    last `decay` of the run, which suits a run in pieces: all but the last have no decay.
    """
    if config.optimizer == "adagrad":
        return config.learning_rate
    if progress < config.warmup:
        return config.learning_rate * max(progress / config.warmup, 1e-3)
    floor = config.final_rate
    if config.schedule == "constant":
        left = min(1.0, max(0.0, 1 - progress) / config.decay) if config.decay else 1.0
        return config.learning_rate * (floor + (1 - floor) * left)
    along = min(1.0, (progress - config.warmup) / max(1e-9, 1 - config.warmup))
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * along)))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """Scales all gradients so that their joint norm is at most `limit`; returns the norm before. Needs no host."""
    return nn.utils.clip_grad_norm_(list(parameters), limit, foreach=True)
