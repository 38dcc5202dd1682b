"""Convolutions over a word's characters, the maximum over positions, the activation: any device, differentiable.

Behind a word's end all characters are padding, so every window that starts there holds the same values: one of them stands
for all, and the rest of the row is never computed. Words go through in chunks of similar length, so that a few long words do
not make all the others long.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

CHUNK = 1024  # words at a time: bounds memory to CHUNK * length * filters


def reference_char_cnn(
    chars: Tensor, table: Tensor, filters: Sequence[tuple[Tensor, Tensor]], *, activation: str, pad: int | None
) -> Tensor:
    """chars (U, C), table (A, E), filters of ((n, E, width), (n,)) to (U, sum n). `pad` is the id that fills rows up."""
    U, C = chars.shape
    if pad is None:
        used = torch.full((U,), C)
    else:
        place = torch.arange(1, C + 1, device=chars.device)
        used = ((chars != pad) * place).amax(dim=1).cpu()  # (U,) up to the last character that is not padding
    order = torch.argsort(used, stable=True)
    parts = []
    for chunk in order.split(CHUNK):
        longest = int(used[chunk[-1]])
        parts.append(_convolve(chars[chunk.to(chars.device)], table, filters, longest, activation))
    if not parts:
        return table.new_zeros(0, sum(len(bias) for _, bias in filters))
    return torch.cat(parts)[torch.argsort(order).to(chars.device)]  # (U, sum n)


def _convolve(
    chars: Tensor, table: Tensor, filters: Sequence[tuple[Tensor, Tensor]], longest: int, activation: str
) -> Tensor:
    U, C = chars.shape
    E = table.shape[1]
    reach = min(C, longest + max(weight.shape[2] for weight, _ in filters))
    x = table[chars[:, :reach]]  # (U, reach, E)
    maxima = []
    for weight, bias in filters:
        width = weight.shape[2]
        positions = min(C - width, longest) + 1  # the last of them is all padding, where the row has room for it
        windows = x.as_strided((U, positions, width * E), (reach * E, E, 1))
        kernel = weight.permute(2, 1, 0).reshape(width * E, -1)  # (width * E, n)
        maxima.append((windows @ kernel).amax(dim=1) + bias)  # (U, n)
    features = torch.cat(maxima, dim=1)
    return torch.relu(features) if activation == "relu" else torch.tanh(features)
