"""Training for a model whose matrices will be stored in four bits.

Every step computes with rounded matrices, and its gradients move the numbers behind them as if nothing had been rounded
(Bengio et al. 2013), so the model learns to do without the bits that it will lose. The scales of the groups are chosen
anew every few steps; between those only the rounding follows the numbers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.native.numbers import GROUP
from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.softmax import SoftmaxConfig
from elmokit.weights.pretrained import outline
from elmokit.weights.storage import STEPS, fits, round_groups

EVERY = 20  # steps between two choices of the scales


class _Rounded(torch.autograd.Function):
    """Values (..., K) to whole multiples of their groups' scales (..., K / 64); gradients pass through."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, scales: Tensor) -> Tensor:
        groups = values.reshape(*scales.shape, GROUP)  # (..., K / 64, 64)
        scale = scales.to(values.dtype)[..., None]
        return (groups / scale).round_().clamp_(-STEPS, STEPS).mul_(scale).view(values.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class Rounding(nn.Module):
    """The scales of some parts' matrices. They are part of the state, so that a resumed run computes the same."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, values in _all(parts):
            shape = (*values.shape[:-1], values.shape[-1] // GROUP)
            self.register_buffer(_buffer(name), torch.ones(shape, dtype=torch.float16))

    @torch.no_grad()
    def choose(self, parts: Mapping[str, nn.Module]) -> None:
        """Each group's best scale for what its numbers are now."""
        for name, values in _all(parts):
            self.get_buffer(_buffer(name)).copy_(round_groups(values)[1])

    def __call__(self, name: str, values: Tensor) -> Tensor:
        """A parameter as the step uses it: rounded if it is one of the matrices."""
        scales = self._buffers.get(_buffer(name))
        if scales is None:
            return values
        rounded: Tensor = _Rounded.apply(values, scales)  # type: ignore[no-untyped-call]
        return rounded


def check_rounding(model: BiLMConfig, output: SoftmaxConfig) -> None:
    """Refuses models that cannot be trained for four bits."""
    if output.kind == "adaptive":
        raise ConfigError("stored_as is int4, which an adaptive softmax does not go with; choose another softmax")
    if next(matrices(outline(model)), None) is None:
        raise ConfigError(
            f"no matrix of this model falls into groups of {GROUP}, so there is nothing to store as int4; choose "
            f"sizes that are multiples of {GROUP}"
        )


@torch.no_grad()
def round_(module: nn.Module) -> None:
    """Rounds a module's matrices as `elmokit convert --dtype int4` does; its int4 form then is exact."""
    for _, values in matrices(module):
        values.copy_(round_groups(values)[0])


def matrices(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The parameters that int4 stores in four bits, as `pack` chooses them: an LSTM's have their directions first."""
    for name, values in module.named_parameters():
        if fits(values) and values.ndim > (2 if "lstm." in name else 1):
            yield name, values


def _all(parts: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for part, module in parts.items():
        yield from ((f"{part}.{name}", values) for name, values in matrices(module))


def _buffer(name: str) -> str:
    return name.replace(".", "_")
