"""ELMo as the older tools run it, in plain torch: what benchmarks/embed.py measures elmokit against.

Batches of sentences in file order, padded; character convolutions over all 50 places of every token, repeated words
and padding included; each direction of each layer a Python loop over time steps with the input product inside, which
sentences leave when they end; float32.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from elmokit.chars import Codec
from elmokit.weights import Pretrained


class PlainElmo:
    """For models over characters with both directions and projections, such as the published ones."""

    def __init__(self, pretrained: Pretrained, codec: Codec) -> None:
        self.config, self.codec = pretrained.config, codec
        self.bilm = pretrained.build()

    @torch.no_grad()
    def layers(self, sentences: list[list[str]]) -> list[NDArray[np.float32]]:
        """All layers of each sentence, (L, T, D), without boundaries."""
        lengths = torch.tensor([len(tokens) + 2 for tokens in sentences])  # (B,)
        vectors = self.token_vectors(self.character_ids(sentences))  # (B, T, P)
        sides = [
            self.run(vectors, lengths, r, backward=side == "backward") for r, side in enumerate(self.config.directions)
        ]
        stack = torch.stack([torch.cat(pair, dim=2) for pair in zip(*sides, strict=True)])  # (L, B, T, 2P)
        return [stack[:, b, 1 : len(tokens) + 1].numpy() for b, tokens in enumerate(sentences)]

    def character_ids(self, sentences: list[list[str]]) -> Tensor:
        ids = np.zeros((len(sentences), max(map(len, sentences)) + 2, self.codec.width), dtype=np.int64)  # (B, T, C)
        for row, tokens in zip(ids, sentences, strict=True):
            row[: len(tokens) + 2] = np.stack([self.codec.begin, *self.codec.encode(tokens), self.codec.end])
        return torch.from_numpy(ids)

    def token_vectors(self, ids: Tensor) -> Tensor:
        B, T, C = ids.shape
        encoder = self.bilm.tokens
        assert encoder.characters is not None
        x = encoder.characters(ids.view(B * T, C)).transpose(1, 2)  # (B * T, E, C)
        x = torch.cat([conv(x).amax(dim=2) for conv in encoder.convolutions], dim=1)
        x = torch.relu(x) if encoder.config.activation == "relu" else torch.tanh(x)  # (B * T, n_filters)
        for highway in encoder.highways:
            x = highway(x)
        x = x if encoder.projection is None else encoder.projection(x)
        return x.view(B, T, -1)  # (B, T, P)

    def run(self, x: Tensor, lengths: Tensor, r: int, *, backward: bool) -> list[Tensor]:
        """One direction: the token layer and each LSTM layer, (B, T, P) in the order of the text."""
        order = torch.argsort(lengths, descending=True, stable=True)  # (B,)
        back, ranked = torch.argsort(order), lengths[order]
        x = _turned(x[order], ranked) if backward else x[order]
        kept = [x]
        for k, lstm in enumerate(self.bilm.lstm):
            y = self.layer(x, ranked.tolist(), lstm.weight_x[r], lstm.weight_h[r], lstm.bias[r], lstm.projection[r])
            x = x + y if k > 0 and self.config.skip_connections else y
            kept.append(x)
        return [(_turned(layer, ranked) if backward else layer)[back] for layer in kept]

    def layer(self, x: Tensor, lengths: list[int], w_x: Tensor, w_h: Tensor, bias: Tensor, w_p: Tensor) -> Tensor:
        rules = self.config.lstm.rules
        B, T, P = x.shape
        out = x.new_zeros(B, T, P)
        h, c = x.new_zeros(B, P), x.new_zeros(B, self.config.lstm.cell_dim)
        for t in range(T):
            rows = sum(length > t for length in lengths)
            gates = F.linear(x[:rows, t], w_x) + F.linear(h[:rows], w_h, bias)  # (rows, 4H)
            i, j, f, o = gates.chunk(4, dim=1)
            memory = torch.sigmoid(f + rules.forget_bias) * c[:rows] + torch.sigmoid(i) * torch.tanh(j)
            if rules.cell_clip is not None:
                memory = memory.clamp(-rules.cell_clip, rules.cell_clip)
            made = F.linear(torch.sigmoid(o) * torch.tanh(memory), w_p)  # (rows, P)
            if rules.proj_clip is not None:
                made = made.clamp(-rules.proj_clip, rules.proj_clip)
            h, c = h.clone(), c.clone()
            h[:rows], c[:rows], out[:rows, t] = made, memory, made
        return out


def _turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Each row reversed at its own length, padding behind it as it is."""
    time = torch.arange(x.shape[1])
    places = torch.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)  # (B, T)
    return x.gather(1, places[..., None].expand_as(x))
