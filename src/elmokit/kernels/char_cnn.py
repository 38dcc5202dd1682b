"""Character convolutions of word types, the maximum over positions, the activation. Plain torch, any device.

A convolution is a matrix product over windows, runs of a word's embedded characters, which are copied out. Behind a
word's last character all windows are equal, so one of them is computed: a word of seven letters in a row of fifty needs
about ten windows. Words are taken in order of length, so that those computed together need the same number.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Activation = Literal["relu", "tanh"]

ELEMENTS = 1 << 20  # products of windows and filters held at once: memory does not grow with the number of words


class Filter(NamedTuple):
    """One bank of n filters of the same width over E-dimensional characters."""

    weight: Tensor  # (n, E, width)
    bias: Tensor  # (n,)


def word_lengths(chars: Tensor, pad: int | None) -> Tensor:
    """Characters up to the last that is not `pad`; all of them where there is no pad."""
    U, C = chars.shape
    if pad is None:
        return torch.full((U,), C, dtype=torch.int32, device=chars.device)
    place = torch.arange(1, C + 1, dtype=torch.int32, device=chars.device)  # (C,)
    return torch.where(chars != pad, place, 0).amax(dim=1)  # (U,)


def reference_char_cnn(
    chars: Tensor, table: Tensor, filters: Sequence[Filter], activation: Activation, *, pad: int | None
) -> Tensor:
    """`chars` (U, C) integers into `table` (A, E) -> (U, sum of n). Differentiable in the table and the filters."""
    U, C = chars.shape
    widest = max(bank.weight.shape[2] for bank in filters)
    lengths, order = word_lengths(chars, pad).sort(stable=True)  # (U,), (U,)
    ends: list[int] = lengths.tolist()
    most = max(bank.weight.shape[0] for bank in filters)
    flat = [bank.weight.permute(2, 1, 0).reshape(-1, bank.weight.shape[0]) for bank in filters]  # (width * E, n)
    pieces = []
    start = 0
    while start < U:
        stop = _stop(ends, start, ELEMENTS // most)
        longest = ends[stop - 1]
        words = chars[order[start:stop], : min(C, longest + widest)]  # (u, c)
        runs = torch.nn.functional.embedding(words, table).flatten(1)  # (u, c * E)
        maxima = []
        for bank, weight in zip(filters, flat, strict=True):
            E, width = bank.weight.shape[1:]
            windows = min(C, longest + width) - width + 1  # the last is padding only, unless the words fill the row
            unfolded = runs.unfold(1, width * E, E)[:, :windows].reshape(-1, width * E)  # (u * windows, width * E)
            products = (unfolded @ weight).view(stop - start, windows, -1)  # (u, windows, n)
            # For a gradient, `max` keeps an index per maximum where `amax` would keep all products.
            best = products.max(dim=1).values if products.requires_grad else products.amax(dim=1)  # (u, n)
            maxima.append(best + bank.bias)
        pieces.append(torch.cat(maxima, dim=1))
        start = stop
    joined = torch.cat(pieces) if pieces else table.new_zeros(0, sum(bank.weight.shape[0] for bank in filters))
    back = torch.empty_like(order).scatter_(0, order, torch.arange(U, device=order.device))
    return activate(joined, activation)[back]  # (U, sum n)


def activate(x: Tensor, activation: Activation) -> Tensor:
    return torch.relu(x) if activation == "relu" else torch.tanh(x)


def _stop(ends: list[int], start: int, windows: int) -> int:
    """The end of the longest run of words from `start` that needs at most so many windows (at least one word)."""
    stop = start + 1
    while stop < len(ends) and (stop + 1 - start) * (ends[stop] + 1) <= windows:
        stop += 1
    return stop
