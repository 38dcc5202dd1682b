"""From a padded batch on a device to one NumPy array per sentence."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.encoders.transfers import download, upload
from elmokit.kernels.cpu.copies import take_rows

Vectors = NDArray[np.floating[Any]]


def widened(values: Tensor) -> Tensor:
    """float64 stays; anything narrower becomes float32, since NumPy has no bfloat16 and sums need the room."""
    return values if values.dtype == torch.float64 else values.float()


def per_sentence(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B arrays (..., T, D) of real positions; the padding never leaves the device.

    The device brings each sentence's vectors together, all layers of it, so what arrives is cut and not copied again.
    """
    *layers, B, T, D = values.shape
    L = math.prod(layers)
    real = mask.cpu().numpy()  # (B, T)
    places = np.arange(L * B * T).reshape(L, B, T).transpose(1, 0, 2)  # (B, L, T) into the flattened (L * B * T)
    wanted = places[np.broadcast_to(real[:, None], places.shape)]  # (L * N,): sentence by sentence, layer by layer
    rows = widened(take_rows(values.reshape(-1, D), upload(wanted, values.device)))  # (L * N, D)
    if normalise:
        rows = torch.nn.functional.normalize(rows, dim=-1)
    counts: list[int] = real.sum(axis=1).tolist()
    parts = download(rows, [L * count for count in counts])
    return [part.reshape(*layers, count, D) for part, count in zip(parts, counts, strict=True)]


def pooled(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B means over real positions (..., D); zero for a sentence without any."""
    counts = mask.sum(dim=1).clamp(min=1)  # (B,)
    means = widened(values).sum(dim=-2) / counts[:, None]  # (..., B, D); padding is zero
    if normalise:
        means = torch.nn.functional.normalize(means, dim=-1)
    return list(np.moveaxis(means.cpu().numpy(), -2, 0))
