"""Batches to the packed, time-major order in which the recurrence runs, and back."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.kernels import LstmState
from elmokit.kernels.cpu.copies import as_array, take_rows

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Packing:
    """Rows sorted by length, longest first. Computed on the host, from lengths alone."""

    lengths: Ints  # (B,) in batch order
    order: Ints  # (B,) batch row of each sorted row
    steps: tuple[int, ...]  # rows still running at each step
    flat: Ints  # (R, N) position in the flattened (B * T) batch, reversed per sentence for a backward direction

    @classmethod
    def of(cls, lengths: Ints, *, backward: Sequence[bool]) -> "Packing":
        order = np.argsort(-lengths, kind="stable")
        ranked = lengths[order]  # (B,) descending
        T = int(ranked[0]) if len(ranked) else 0
        steps = np.searchsorted(-ranked, -np.arange(T))  # (T,) rows longer than t
        time = np.repeat(np.arange(T), steps)  # (N,)
        row = np.arange(len(time)) - np.repeat(np.cumsum(steps) - steps, steps)  # (N,) sorted row
        start = order[row] * T
        mirrored = ranked[row] - 1 - time
        flat = np.stack([start + (mirrored if turned else time) for turned in backward])
        return cls(lengths, order, tuple(steps.tolist()), flat)

    def places(self, device: torch.device) -> Tensor:
        return torch.from_numpy(self.flat).to(device)

    def mask(self, device: torch.device) -> Tensor:
        """True at real positions. (B, T)"""
        return torch.from_numpy(np.arange(len(self.steps)) < self.lengths[:, None]).to(device)

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
            padded = np.flatnonzero(np.arange(T) >= self.lengths[:, None])
            if (array := as_array(values)) is not None:
                array[:, padded] = 0
            else:
                values = values.index_fill_(1, torch.from_numpy(padded).to(places.device), 0)
        return values.view(len(layers), B, T, R * P)

    def sort(self, state: Sequence[LstmState]) -> tuple[LstmState, ...]:
        """A state in batch order to the order of the packed rows."""
        return _reorder(state, self.order)

    def restore(self, state: Sequence[LstmState]) -> tuple[LstmState, ...]:
        """And back to batch order."""
        return _reorder(state, np.argsort(self.order))


def _reorder(state: Sequence[LstmState], order: NDArray[np.int64]) -> tuple[LstmState, ...]:
    rows = torch.from_numpy(order).to(state[0].h.device)
    return tuple(LstmState(h.index_select(1, rows), c.index_select(1, rows)) for h, c in state)
