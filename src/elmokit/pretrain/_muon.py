"""Muon (Jordan et al. 2024): matrices inside the network move along the nearest orthogonal matrix of their momentum.

Every direction of a matrix then learns at the same pace, also those whose gradients are small. Character vectors,
convolutions, softmax and biases stay with AdamW. Updates are scaled to the size of AdamW's (Liu et al. 2025, section
2.2), so one learning rate serves both.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.nn.char_cnn import Highway, TokenEncoder
from elmokit.nn.lstm import LstmLayer

MOMENTUM = 0.95
SIZE = 0.2  # root mean square of an update, in learning rates
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the iteration: steep at 0, and within 0.7 ... 1.2 after five rounds
ROUNDS = 5


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
