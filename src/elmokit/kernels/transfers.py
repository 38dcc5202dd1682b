"""Arrays to a device, on CUDA through page-locked memory and without waiting for what the device is at."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE_BYTES = 32 << 20  # of page-locked memory at once


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device; on CUDA without waiting for what the device is at."""
    host = torch.from_numpy(array)
    return locked(host).to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def locked(host: Tensor) -> Tensor:
    """A copy in page-locked memory, from which a device fetches by itself."""
    return staging(host.shape, host.dtype).copy_(host)


def staging(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Page-locked, unless empty, too large for that, or refused by the system: copies are then slower, not wrong."""
    if 0 < math.prod(shape) * dtype.itemsize <= PIECE_BYTES and torch.cuda.is_available():
        try:
            return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
        except RuntimeError:
            pass
    return torch.empty(tuple(shape), dtype=dtype)
