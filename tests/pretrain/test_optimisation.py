"""Optimizers, clipping and the scale of gradients: steps equal those written out by hand, in float64."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.objective import Inputs, Objective
from elmokit.pretrain.step import Step
from elmokit.pretrain.windows import Numbering, Position, Window

V, ROWS, T = 40, 4, 5
CPU = torch.device("cpu")


def settings(**changes: Any) -> PretrainConfig:
    small: dict[str, Any] = {"cell_dim": 10, "projection_dim": 6, "filters": ((1, 3), (2, 4)), "char_dim": 3}
    return PretrainConfig(**{**small, "rows": ROWS, "window": T, "dropout": 0.0, "softmax": "full", **changes})


def an_objective(config: PretrainConfig) -> Objective:
    made = Objective(config.model(), config.output(), V, dtype=torch.float64).double()
    made.initialise(3)
    with torch.no_grad():
        for parameter in made.parameters():  # biases, too: decay of a zero would not show
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    return made.train()


def codes(types: Any) -> Tensor:
    return torch.randint(1, 262, (V, 50), generator=torch.Generator().manual_seed(1), dtype=torch.int32)[types]


def a_window(rows: slice, seed: int) -> Window:
    """Some rows of a batch; every row starts from zero state, so that the state before does not matter."""
    dice = np.random.default_rng(seed)
    ids, targets = dice.integers(0, V, (2, 2, T, ROWS))
    keep = np.ones((T, ROWS), dtype=np.float32)
    keep[0] = 0
    types, which = Numbering(V)(ids[:, :, rows].reshape(2, -1).astype(np.uint32))
    return Window(types, which, targets[:, :, rows].reshape(2, -1), keep[:, rows].reshape(-1), Position())


def clipped_gradients(objective: Objective, window: Window, scale: float, limit: float) -> list[Tensor]:
    objective.zero_grad()
    tensors = (torch.from_numpy(x) for x in (window.which, window.targets, window.keep))
    loss, _ = objective(Inputs(codes(window.types), *tensors, torch.zeros(1)), objective.zero_state(ROWS))
    (scale * loss).backward()
    grads = [p.grad for p in objective.parameters() if p.grad is not None]
    norm = sum(float((g**2).sum()) for g in grads) ** 0.5
    assert not limit / 1.5 < norm < 1.5 * limit  # clipping shows, or its absence
    return [g * min(1.0, limit / norm) for g in grads]


class AdamW:
    """Loshchilov and Hutter 2019, betas 0.9 and 0.98; biases and other vectors do not decay."""

    def __init__(self, decay: float) -> None:
        self.decay, self.t, self.m, self.v = decay, 0, dict[int, Tensor](), dict[int, Tensor]()

    def __call__(self, values: list[Tensor], grads: list[Tensor], rate: float) -> None:
        self.t += 1
        for k, g in enumerate(grads):
            self.m[k] = 0.9 * self.m.get(k, torch.zeros_like(g)) + 0.1 * g
            self.v[k] = 0.98 * self.v.get(k, torch.zeros_like(g)) + 0.02 * g**2
            m, v = self.m[k] / (1 - 0.9**self.t), self.v[k] / (1 - 0.98**self.t)
            if values[k].ndim > 1:
                values[k] *= 1 - rate * self.decay
            values[k] -= rate * m / (v.sqrt() + 1e-8)


class Adagrad:
    """Duchi et al. 2011, the sums of squares starting at 1, as bilm-tf has it."""

    def __init__(self) -> None:
        self.sums: dict[int, Tensor] = {}

    def __call__(self, values: list[Tensor], grads: list[Tensor], rate: float) -> None:
        for k, g in enumerate(grads):
            self.sums[k] = self.sums.get(k, torch.ones_like(g)) + g**2
            values[k] -= rate * g / (self.sums[k].sqrt() + 1e-10)


@pytest.mark.parametrize("limit", [0.05, 100.0])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("optimizer", ["adamw", "adagrad"])
def test_steps_equal_the_formulas(optimizer: Any, accumulate: int, limit: float) -> None:
    config = settings(optimizer=optimizer, weight_decay=0.3, clip_norm=limit, accumulate=accumulate)
    objective = an_objective(config)
    by_hand = copy.deepcopy(objective)
    values = [p.data for p in by_hand.parameters()]
    # Published gradients are of the sum over a window's steps.
    move, scale = (AdamW(0.3), 1.0) if optimizer == "adamw" else (Adagrad(), float(T))
    step = Step(objective, config, codes, batch_rows=ROWS, device=CPU)
    size = ROWS // accumulate
    for k, rate in enumerate((0.01, 0.03, 0.02)):
        parts = [a_window(slice(n * size, (n + 1) * size), seed=k) for n in range(accumulate)]
        step(parts, torch.zeros(1), rate)
        move(values, clipped_gradients(by_hand, a_window(slice(0, ROWS), seed=k), scale, limit), rate)
        for (name, found), wanted in zip(objective.named_parameters(), values, strict=True):
            torch.testing.assert_close(found.data, wanted, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
