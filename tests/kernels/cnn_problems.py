"""Random words and filters for the character convolution tests, and the convolution as its definition says."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.kernels import Activation, Filter

ALPHABET, PAD = 40, 39


def draw(
    U: int, C: int, E: int, banks: Sequence[tuple[int, int]], *, device: str = "cpu"
) -> tuple[Tensor, list[Tensor]]:
    """Characters of all lengths from 0 to C, padded; the table and each bank's weight and bias, in float64."""
    torch.manual_seed(U + E)
    lengths = torch.randint(0, C + 1, (U,))
    lengths[:3] = torch.tensor([0, C, C - 1])
    chars = torch.randint(0, ALPHABET - 1, (U, C), dtype=torch.int32)
    chars[torch.arange(C) >= lengths[:, None]] = PAD
    shapes = [(ALPHABET, E), *(shape for width, n in banks for shape in ((n, E, width), (n,)))]
    return chars.to(device), [0.4 * torch.randn(shape, dtype=torch.float64).to(device) for shape in shapes]


def bank(parts: Sequence[Tensor]) -> list[Filter]:
    return [Filter(weight, bias) for weight, bias in zip(parts[1::2], parts[2::2], strict=True)]


def naive_char_cnn(chars: Tensor, table: Tensor, filters: Sequence[Filter], activation: Activation) -> Tensor:
    """Every position of every word, through torch's own convolution."""
    runs = table[chars.long()].transpose(1, 2)  # (U, E, C)
    maxima = [torch.nn.functional.conv1d(runs, f.weight, f.bias).amax(dim=2) for f in filters]
    joined = torch.cat(maxima, dim=1)
    return torch.relu(joined) if activation == "relu" else torch.tanh(joined)
