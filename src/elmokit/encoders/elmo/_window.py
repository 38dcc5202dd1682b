"""Sentences by their numbers on a device: a batch costs its caller a few small arrays, and no padding is ever made."""

import numpy as np
import torch
from torch import Tensor

from elmokit.encoders._transfers import upload
from elmokit.kernels.cpu.copies import take_rows
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM
from elmokit.text.packed import Ints, Packed


class WordWindow:
    """The words of some sentences on a device, with their vectors (U, P), those of the two boundaries first."""

    def __init__(self, bilm: BiLM, vectors: Tensor, sentences: Packed) -> None:
        self.bilm, self.vectors = bilm, vectors
        self.lengths, self.offsets = sentences.lengths, sentences.offsets
        ids = np.append(sentences.ids, np.int32(0))  # so that there is something to take where there are no words
        self.types = upload(ids, vectors.device).long() + 2  # (N + 1,)

    @torch.no_grad()
    def run(self, rows: Ints) -> LayerStack:
        """All layers of the words of these sentences, which are sorted by length, longest first. (L, 1, n, D)"""
        bilm, device = self.bilm, self.vectors.device
        R, B = len(bilm.config.directions), len(rows)
        lengths = self.lengths[rows] + 2  # (B,) with boundaries
        T, N = int(lengths[0]), int(lengths.sum())
        steps = np.searchsorted(-lengths, -np.arange(T))  # (T,) rows longer than t
        inner = lengths - 2
        table = upload(np.stack([lengths, self.offsets[rows], np.cumsum(inner) - inner, inner]), device)  # (4, B)
        long, begin, place, counts = table
        order = upload(np.stack([steps, np.cumsum(steps) - steps]), device)  # (2, T)
        running, first = order
        time = torch.repeat_interleave(torch.arange(T, device=device), running, output_size=N)  # (N,) packed
        row = torch.arange(N, device=device) - first[time]
        end = long[row] - 1
        directions = [name == "backward" for name in bilm.config.directions]
        types = torch.stack([self._types(end - time if back else time, begin[row], end) for back in directions])
        x = take_rows(self.vectors, types.flatten()).view(R, N, -1)  # (R, N, P)
        layers, _ = bilm.run(x, tuple(steps.tolist()), bilm.zero_state(B, like=x))
        # Back to the words: row after row, each from its first word on.
        n = N - 2 * B
        row = torch.repeat_interleave(torch.arange(B, device=device), counts, output_size=n)  # (n,)
        time = torch.arange(1, n + 1, device=device) - place[row]
        sides = [first[long[row] - 1 - time if back else time] + row + r * N for r, back in enumerate(directions)]
        wanted = torch.stack(sides, dim=1).flatten()  # (n * R,)
        values = x.new_empty(len(layers) + 1, n * R, x.shape[2])
        for layer, out in zip([x, *layers], values, strict=True):
            take_rows(layer.flatten(0, 1), wanted, out=out)
        mask = torch.ones(1, n, dtype=torch.bool, device=device)
        return LayerStack(values.view(len(values), 1, n, -1), mask, bilm.config.layer_names)

    def _types(self, position: Tensor, begin: Tensor, end: Tensor) -> Tensor:
        """Which vector stands at a position of its sentence, whose first word is number `begin`. (N,)"""
        found = self.types[(begin + position - 1).clamp(0, len(self.types) - 1)]
        return torch.where(position == 0, 0, torch.where(position == end, 1, found))
