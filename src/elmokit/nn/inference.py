"""Layers for inference on a CPU, with matrices laid out once for this machine: they are neither trained nor saved."""

import torch
from torch import Tensor, nn

from elmokit.kernels import LstmState
from elmokit.kernels.contract import PreparedRecurrence
from elmokit.kernels.cpu.c import NativeTokens
from elmokit.kernels.cpu.products import Product


class PreparedLstm(nn.Module):
    """In place of an `LstmLayer`."""

    def __init__(self, layer: PreparedRecurrence) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        return self.layer(x, state, steps, keep=keep)


class PreparedLinear(nn.Module):
    """In place of an `nn.Linear`."""

    def __init__(self, product: Product, bias: Tensor) -> None:
        super().__init__()
        self.product, self.bias = product, bias.to(torch.float32)[None, None]  # (1, 1, N)

    def forward(self, x: Tensor) -> Tensor:
        return self.product.affine(x[None], self.bias)[0]


class PreparedTokens(nn.Module):
    """In place of a `TokenEncoder` of characters alone."""

    def __init__(self, encoder: NativeTokens, characters: nn.Embedding) -> None:
        super().__init__()
        self.encoder, self.characters = encoder, characters

    def forward(self, types: Tensor) -> Tensor:
        return self.encoder(types)
