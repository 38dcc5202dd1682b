"""Layers or mix: what a call makes of the layers of a batch."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.kernels.cpu.copies import as_array
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.mix import ScalarMix


@dataclass(frozen=True, slots=True)
class Choice:
    """Either a choice of layers or a trained mix."""

    layers: LayerChoice
    mix: ScalarMix | None = None

    @classmethod
    def of(cls, layers: str | int | LayerChoice | None, mix: ScalarMix | None, *, default: str) -> "Choice":
        if layers is not None and mix is not None:
            raise InputError(
                f"both layers={layers!r} and a mix were given; a mix already weighs the layers, give one of them"
            )
        return cls(LayerChoice.parse(default if layers is None else layers), mix)

    def axes(self, depth: int, width: int) -> tuple[int, ...]:
        """The shape of one position's result: (D,), or (L, D) where the layers stay apart."""
        if self.mix is not None:
            return (width,)
        last = self.layers.width(depth, width)
        return (depth, last) if self.layers.kind == "all" else (last,)

    def on(self, device: torch.device, dtype: torch.dtype) -> Callable[[LayerStack], tuple[Tensor, Tensor]]:
        """From a stack to its values without boundaries, (B, T, D) or (L, B, T, D), and their mask (B, T)."""
        if self.mix is None:
            return self._pick
        mix = copy.deepcopy(self.mix).to(device, dtype).eval()  # the user's own may be in training, or elsewhere
        return lambda stack: (mix(stack), stack.inner().mask)

    def _pick(self, stack: LayerStack) -> tuple[Tensor, Tensor]:
        if not stack.bounded:
            return self.layers.apply(stack.values), stack.mask
        mask = stack.mask[:, 2:]  # as in `inner`, but only what was chosen is masked
        values = stack.values[:, :, 1:-1]
        if (array := as_array(values)) is not None:
            return torch.from_numpy(self.layers.apply(array) * mask.numpy()[..., None]), mask
        return self.layers.apply(values) * mask[..., None], mask
