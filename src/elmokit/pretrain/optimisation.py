"""Optimizers, the learning-rate schedule, the clip of gradients, and what notices that training has diverged.

Muon (Jordan et al. 2024) moves the matrices inside the network along the nearest orthogonal matrix of their momentum,
so every direction of a matrix learns at the same pace. Character vectors, convolutions, softmax and biases stay with
AdamW. Updates are scaled to the size of AdamW's (Liu et al. 2025, section 2.2), so one learning rate serves both.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import Count, Measured
from elmokit.errors import ElmokitError
from elmokit.kernels import fused_step
from elmokit.nn.char_cnn import Highway, TokenEncoder
from elmokit.nn.lstm import LstmLayer
from elmokit.pretrain.config import PretrainConfig

MOMENTUM = 0.95
SIZE = 0.2  # root mean square of an update, in learning rates
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the iteration: steep at 0, and within 0.7 ... 1.2 after five rounds
ROUNDS = 5
SMOOTHING = 1 / 50  # of the mean: it covers about the last 50 steps
FIRST = 5  # steps whose mean is the loss at the beginning
PATIENCE = 100  # steps with a loss that is too high and does not fall
FAR, FAR_SHARE = 1.0, 0.25  # too high: above the best by more than this many nats, and by more than this share of it
LEARNS_WITHIN, RISE = 500, 0.5  # too high after so many steps: above the beginning by more than this many nats
SPIKE = 10.0  # one step counts as at most so many nats above the mean


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


def clipped_step(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], limit: float) -> Tensor:
    """A step with all gradients scaled so that their joint norm is at most `limit`; returns the norm before.

    Needs no host. AdamW on a GPU scales them on its way, which saves reading and writing them all; gradients of large
    parameters are gone afterwards.
    """
    given = [p for p in parameters if p.grad is not None]
    if type(optimizer) is torch.optim.AdamW and optimizer.defaults["fused"] and all(fused_step(p) for p in given):
        norm = nn.utils.get_total_norm([p.grad for p in given if p.grad is not None], foreach=True)
        from elmokit.kernels.triton.adamw import move_large_

        scale = ((norm + 1e-6) / limit).clamp(min=1.0)
        move_large_(optimizer, scale)
        optimizer.grad_scale = scale  # type: ignore[attr-defined]  # torch divides the other gradients by it
    else:
        norm = nn.utils.clip_grad_norm_(given, limit, foreach=True)
    optimizer.step()
    return norm


def inner_matrices(module: nn.Module) -> Iterator[tuple[Tensor, int]]:
    """The parameters that Muon moves, each with the number of matrices stacked along its rows."""
    for part in module.modules():
        if isinstance(part, LstmLayer):
            yield part.weight_x, 4  # (R, 4H, P)
            yield part.weight_h, 4
            if part.projection is not None:
                yield part.projection, 1  # (R, P, H)
        elif isinstance(part, Highway):
            yield part.transform.weight, 1  # (F, F) of F filters
            yield part.gate.weight, 1
        elif isinstance(part, TokenEncoder) and part.projection is not None:
            yield part.projection.weight, 1  # (P, F)


@torch.no_grad()
def orthogonalise(matrices: Tensor) -> Tensor:
    """Matrices (n, rows, columns) with all their singular values near 1, by Newton-Schulz iteration."""
    half = torch.bfloat16 if matrices.is_cuda else torch.float32
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).to(half)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.AdamW):
    """AdamW for most parameters; those in groups marked `orthogonal` move by Muon."""

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            if group.get("orthogonal"):
                for parameter, stacked in zip(group["params"], group["stacked"], strict=True):
                    if parameter.grad is not None:
                        self._move(parameter, stacked, group)
                        parameter.grad = None  # AdamW leaves it alone
        super().step(closure)

    @torch.no_grad()
    def _move(self, parameter: Tensor, stacked: int, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if "momentum" not in state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["momentum"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        state["step"].add_(1)
        state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        ahead = parameter.grad.lerp(state["momentum"], MOMENTUM)  # Nesterov's momentum
        rows, columns = parameter.shape[-2] // stacked, parameter.shape[-1]
        update = orthogonalise(ahead.view(-1, rows, columns)).reshape(parameter.shape).to(parameter.dtype)
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(update * (group["lr"] * (SIZE * max(rows, columns) ** 0.5)))


class DivergedError(ElmokitError):
    """The loss is far above what it was: the weights are of no use any more."""


@dataclass(slots=True)
class Watch:
    """Follows the loss step by step. Saved in checkpoints, so a resumed run decides like one that was never stopped.

    Shuffled text is alike everywhere, so the loss is compared with its best. In corpus order the text may become
    harder, and the loss is compared with its beginning.
    """

    shuffled: bool = True
    steps: Count = 0
    mean: Measured = 0.0
    first: Measured = math.inf
    lowest: Measured = math.inf
    high: Count = 0  # steps, since the mean became too high, that did not lower it

    def see(self, loss: float) -> None:
        """The loss of the next step."""
        self.steps += 1
        if self.steps > 1:
            loss = min(loss, self.mean + (SPIKE if self.steps > FIRST else 1.0))
        self.mean += (loss - self.mean) * max(1 / self.steps, SMOOTHING)
        if self.steps == FIRST:
            self.first = self.lowest = self.mean
        elif self.steps > FIRST and self.shuffled:
            self.lowest = min(self.lowest, self.mean)
        self.high = self.high + (loss >= self.mean) if self._rise > 1 else 0

    @property
    def diverged(self) -> bool:
        return self.high >= PATIENCE or not math.isfinite(self.mean)

    @property
    def suspect(self) -> bool:
        """Whether the loss is rising, so that a checkpoint may already hold bad weights."""
        return self._rise > 0.25 or not math.isfinite(self.mean)

    @property
    def _rise(self) -> float:
        """How far the mean has risen; above 1 is too high."""
        if self.steps <= FIRST:
            return 0.0
        from_best = (self.mean - self.lowest) / max(FAR, FAR_SHARE * self.lowest)
        late = self.shuffled and self.steps >= LEARNS_WITHIN
        return max(from_best, (self.mean - self.first) / RISE) if late else from_best
