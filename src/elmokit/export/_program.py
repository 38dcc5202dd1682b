"""The biLM as a torch.export program: the same inputs and outputs as the ONNX file, for those who run torch.

The network that elmokit runs packs its batches on the host, which a program cannot. This one is padded like the ONNX
graph, and torch's `scan` keeps the time steps a loop, so that one program serves every length.
"""

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim, ExportedProgram

from elmokit.batch import build_batch
from elmokit.nn.bilm import BiLM
from elmokit.nn.lstm import LstmLayer
from elmokit.text import Sentence
from elmokit.weights import Pretrained


def export_program(pretrained: Pretrained) -> ExportedProgram:
    """The program for any number of words, sentences and positions."""
    codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
    batch = build_batch([Sentence.of(["three", "words", "here"]), Sentence.of(["one"])], codec)
    example = tuple(torch.from_numpy(part) for part in (batch.types, batch.index, batch.lengths))
    U, B, T = Dim("U", min=2), Dim("B"), Dim("T", min=2)
    with torch.no_grad():
        model = PaddedBiLM(pretrained.build())
        return torch.export.export(model, example, dynamic_shapes=({0: U}, {0: B, 1: T}, {0: B}))


class PaddedBiLM(nn.Module):
    """types (U, W), index (B, T), lengths (B,) to the layers (L, B, T, D), zero at padding, and the mask (B, T)."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.bilm = bilm

    def forward(self, types: Tensor, index: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        config = self.bilm.config
        vectors = self.token_vectors(types)  # (U, P)
        time = torch.arange(index.shape[1], device=index.device)  # (T,)
        mask = time < lengths[:, None]  # (B, T)
        mirrored = torch.where(mask, lengths[:, None] - 1 - time, time)  # (B, T) its own inverse
        layers: list[list[Tensor]] = []
        for r, direction in enumerate(config.directions):
            turn = mirrored if direction == "backward" else time.expand_as(index)  # (B, T)
            x = vectors[index.gather(1, turn)]  # (B, T, P)
            kept = [x]
            for k, lstm in enumerate(self.bilm.lstm):
                assert isinstance(lstm, LstmLayer)
                y = _recurrence(lstm, r, x)
                x = x + y if k > 0 and config.skip_connections else y
                kept.append(x)
            layers.append([layer.gather(1, turn[..., None].expand_as(layer)) for layer in kept])
        values = torch.stack([torch.cat(sides, dim=2) for sides in zip(*layers, strict=True)])  # (L, B, T, R * P)
        return values.masked_fill(~mask[None, ..., None], 0), mask

    def token_vectors(self, types: Tensor) -> Tensor:
        """`TokenEncoder` without its host-side sorting by length."""
        tokens, config = self.bilm.tokens, self.bilm.tokens.config
        parts = [] if tokens.words is None else [tokens.words(types[:, 0])]  # (U, word_dim)
        if tokens.characters is not None:
            x = tokens.characters(types[:, 1 if config.word_dim else 0 :]).transpose(1, 2)  # (U, E, C)
            x = torch.cat([conv(x).amax(dim=2) for conv in tokens.convolutions], dim=1)  # (U, n_filters)
            x = torch.relu(x) if config.activation == "relu" else torch.tanh(x)
            for highway in tokens.highways:
                x = highway(x)
            parts.append(x)
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (U, n_features)
        vectors: Tensor = features if tokens.projection is None else tokens.projection(features)  # (U, P)
        return vectors


def _recurrence(lstm: LstmLayer, r: int, x: Tensor) -> Tensor:
    """One direction of one layer, (B, T, P) to (B, T, P)."""
    config, rules = lstm.config, lstm.config.rules
    w_h = lstm.weight_h[r].t()  # (P, 4H)
    w_p = None if lstm.projection is None else lstm.projection[r].t()  # (H, P)
    products = torch.addmm(lstm.bias[r], x.flatten(0, 1), lstm.weight_x[r].t())  # (B * T, 4H)
    products = products.view(x.shape[0], x.shape[1], -1).transpose(0, 1)  # (T, B, 4H)

    def step(state: tuple[Tensor, Tensor], product: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        h, c = state  # (B, P), (B, H)
        i, j, f, o = (product + h @ w_h).chunk(4, dim=1)
        c = torch.sigmoid(f + rules.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
        if rules.cell_clip is not None:
            c = c.clamp(-rules.cell_clip, rules.cell_clip)
        h = torch.sigmoid(o) * torch.tanh(c)
        if w_p is not None:
            h = h @ w_p
            if rules.proj_clip is not None:
                h = h.clamp(-rules.proj_clip, rules.proj_clip)
        return (h, c), h.clone()  # what is kept of a step may not be the state itself

    start = x.new_zeros(x.shape[0], config.projection_dim), x.new_zeros(x.shape[0], config.cell_dim)
    outputs: Tensor
    _, outputs = scan(step, start, products)  # (T, B, P)
    return outputs.transpose(0, 1)
