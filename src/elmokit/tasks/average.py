"""A moving average of weights: a_t = d a_t-1 + (1 - d) w_t. It is steadier than the weights of the last step."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of a module's floating-point parameters; `update` after each step, `in_place` to run with it."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.decay = decay
        self.steps = 0
        self.values: dict[str, Tensor] = {}  # empty until the first step, from whose weights it begins

    @property
    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "values": self.values}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps, self.values = state["steps"], state["values"]

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        if not self.values:
            self.values = {name: p.detach().clone() for name, p in self.parameters.items()}
            return
        decay = min(self.decay, self.steps / (9 + self.steps))  # short at first, so that the start is soon forgotten
        for name, p in self.parameters.items():
            self.values[name].lerp_(p.detach(), 1 - decay)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The module with the average for its weights, as long as the block runs."""
        if not self.values:
            yield
            return
        kept = {name: p.detach().clone() for name, p in self.parameters.items()}
        self._put(self.values)
        try:
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.copy_(values[name])
