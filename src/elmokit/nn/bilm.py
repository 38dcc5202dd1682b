"""The bidirectional language model: token encoder, then stacked LSTMs whose directions never mix."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.batch import PackedOrder
from elmokit.kernels import LstmState
from elmokit.kernels.cpu.copies import as_array, sum_of, take_rows, zeros_of
from elmokit.kernels.transfers import upload
from elmokit.layers import LayerStack
from elmokit.nn.char_cnn import TokenEncoder
from elmokit.nn.lstm import LstmLayer
from elmokit.shape import BiLMConfig as BiLMConfig
from elmokit.shape import Direction as Direction

State = tuple[LstmState, ...]  # one per layer, rows in batch order
Ints = NDArray[np.int64]


class BiLM(nn.Module):
    """types (U, W), index (B, T), lengths (B,) to a `LayerStack`, boundaries still in it."""

    def __init__(self, config: BiLMConfig, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.tokens = TokenEncoder(config.tokens)
        self.lstm = nn.ModuleList(
            LstmLayer(config.lstm, directions=len(config.directions)) for _ in range(config.n_layers)
        )

    def forward(
        self, types: Tensor, index: Tensor, lengths: NDArray[np.int64], *, state: State | None = None
    ) -> tuple[LayerStack, State]:
        return self.contextualise(self.tokens(types), index, lengths, state=state)

    def contextualise(
        self, vectors: Tensor, index: Tensor, lengths: NDArray[np.int64], *, state: State | None = None
    ) -> tuple[LayerStack, State]:
        """The same from ready token vectors (U, P), for those who keep the vectors of known words."""
        packing = Packing.of(lengths, backward=[d == "backward" for d in self.config.directions])
        places = packing.places(vectors.device)  # (R, N) into the flattened (B * T)
        types = index.reshape(-1)[places]  # (R, N)
        x = take_rows(vectors, types.flatten()).view(*types.shape, vectors.shape[1])  # (R, N, P)
        started = self.zero_state(len(lengths), like=x) if state is None else packing.sort(state)
        layers, ended = self.run(x, packing.steps, started)
        values = packing.unpack([x, *layers], places)  # (L, B, T, R * P)
        mask = packing.mask(vectors.device)  # (B, T)
        return LayerStack(values, mask, self.config.layer_names, bounded=True), packing.restore(ended)

    def run(
        self, x: Tensor, steps: tuple[int, ...], state: State, *, keep: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """The LSTM layers alone, over packed input (R, N, P). Training and inference share this.

        Dropout (training) falls on each layer's input and on the top output, and the residual adds the dropped input.
        """
        layers: list[Tensor] = []
        ended: list[LstmState] = []
        for k, lstm in enumerate(self.lstm):
            x = nn.functional.dropout(x, self.dropout, self.training)
            y, last = lstm(x, state[k], steps, keep=keep)
            x = sum_of(x, y) if k > 0 and self.config.skip_connections else y
            layers.append(x)
            ended.append(last)
        layers[-1] = nn.functional.dropout(layers[-1], self.dropout, self.training)
        return layers, tuple(ended)

    def zero_state(self, rows: int, *, like: Tensor) -> State:
        lstm, R = self.config.lstm, len(self.config.directions)
        exact = torch.promote_types(like.dtype, torch.float32)  # a half-precision model keeps its cells in float32
        shapes = (R, rows, lstm.projection_dim), (R, rows, lstm.cell_dim)
        return tuple(
            LstmState(zeros_of(shapes[0], like=like), zeros_of(shapes[1], like=like, dtype=exact)) for _ in self.lstm
        )


@torch.no_grad()
def initialise(model: BiLM, *, seed: int) -> None:
    """Fresh weights for pre-training: the published scales for the token encoder, uniform Glorot-like for the LSTMs."""
    source = torch.Generator().manual_seed(seed)

    def uniform(tensor: Tensor, scale: float) -> None:
        tensor.copy_(torch.rand(tensor.shape, generator=source) * 2 * scale - scale)

    def normal(tensor: Tensor, scale: float) -> None:
        tensor.copy_(torch.randn(tensor.shape, generator=source) * scale)

    encoder = model.tokens
    if encoder.words is not None:
        normal(encoder.words.weight, encoder.config.word_dim**-0.5)
    if encoder.characters is not None:
        uniform(encoder.characters.weight, 1.0)
        encoder.characters.weight[0] = 0
    convolutions: Sequence[nn.Module] = list(encoder.convolutions)
    for conv in convolutions:
        assert isinstance(conv, nn.Conv1d)
        assert conv.bias is not None
        if encoder.config.activation == "relu":
            uniform(conv.weight, 0.05)
        else:
            normal(conv.weight, (conv.kernel_size[0] * conv.in_channels) ** -0.5)
        conv.bias.zero_()
    for highway in encoder.highways:
        for linear, bias in ((highway.transform, 0.0), (highway.gate, -2.0)):
            assert isinstance(linear, nn.Linear)
            normal(linear.weight, linear.in_features**-0.5)
            linear.bias.fill_(bias)
    if encoder.projection is not None:
        normal(encoder.projection.weight, encoder.projection.in_features**-0.5)
        encoder.projection.bias.zero_()
    for layer in model.lstm:
        assert isinstance(layer, LstmLayer)
        for weight in (layer.weight_x, layer.weight_h, layer.projection):
            if weight is not None:
                uniform(weight, (3 / weight.shape[-1]) ** 0.5 / 2)
        layer.bias.zero_()


class Packing(PackedOrder):
    """The same on a device."""

    def places(self, device: torch.device) -> Tensor:
        return upload(self.flat, device)

    def mask(self, device: torch.device) -> Tensor:
        """True at real positions. (B, T)"""
        return upload(np.arange(len(self.steps)) < self.lengths[:, None], device)

    def unpack(self, layers: Sequence[Tensor], places: Tensor) -> Tensor:
        """Layers (R, N, P) to (L, B, T, R * P), zero at padding."""
        B, T = len(self.lengths), len(self.steps)
        R, N, P = layers[0].shape
        back = places.new_zeros(R, B * T)  # where each position stands among the packed rows of all directions
        back.scatter_(1, places, torch.arange(R * N, device=places.device).view(R, N))
        rows = back.t().flatten()  # (B * T * R,) so that a position's directions come side by side
        flat = [layer.flatten(0, 1) for layer in layers]  # (R * N, P) each
        if any(layer.requires_grad for layer in layers):
            values = torch.stack([layer.index_select(0, rows) for layer in flat])
        else:  # each goes straight to its place
            values = flat[0].new_empty(len(layers), len(rows), P)
            for layer, out in zip(flat, values, strict=True):
                take_rows(layer, rows, out=out)
        values = values.view(len(layers), B * T, R * P)
        if B * T > N:
            padded = self.padding()
            if (array := as_array(values)) is not None:
                array[:, padded] = 0
            else:
                values = values.index_fill_(1, upload(padded, places.device), 0)
        return values.view(len(layers), B, T, R * P)

    def sort(self, state: Sequence[LstmState]) -> tuple[LstmState, ...]:
        """A state in batch order to the order of the packed rows."""
        return _reorder(state, self.order)

    def restore(self, state: Sequence[LstmState]) -> tuple[LstmState, ...]:
        """And back to batch order."""
        return _reorder(state, np.argsort(self.order))


def _reorder(state: Sequence[LstmState], order: NDArray[np.int64]) -> tuple[LstmState, ...]:
    rows = upload(order, state[0].h.device)
    return tuple(LstmState(h.index_select(1, rows), c.index_select(1, rows)) for h, c in state)
