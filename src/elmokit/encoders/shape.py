"""From a padded batch on a device to one NumPy array per sentence."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Vectors = NDArray[np.floating[Any]]


def widened(values: Tensor) -> Tensor:
    """float64 stays; anything narrower becomes float32, since NumPy has no bfloat16 and sums need the room."""
    return values if values.dtype == torch.float64 else values.float()


def per_sentence(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B arrays (..., T, D) of real positions; the padding never leaves the device."""
    real = widened(values[..., mask, :])  # (..., N, D)
    if normalise:
        real = torch.nn.functional.normalize(real, dim=-1)
    ends = np.cumsum(mask.sum(dim=1).cpu().numpy())  # (B,)
    parts = np.split(real.cpu().numpy(), ends[:-1], axis=-2)
    return [np.ascontiguousarray(part) for part in parts]


def pooled(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B means over real positions (..., D); zero for a sentence without any."""
    counts = mask.sum(dim=1).clamp(min=1)  # (B,)
    means = widened(values).sum(dim=-2) / counts[:, None]  # (..., B, D); padding is zero
    if normalise:
        means = torch.nn.functional.normalize(means, dim=-1)
    return list(np.moveaxis(means.cpu().numpy(), -2, 0))
