"""Numbers to a CUDA device and back through page-locked memory, without needless waiting; on a CPU plain arrays.

Page-locked memory is borrowed for a copy only. What is handed out is ordinary memory that nobody writes to again.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE_BYTES = 32 << 20  # of page-locked memory at once, and what a caller who keeps one sentence holds on to at most
AHEAD = 2  # pieces under way: one crosses over while the one before is copied out


def upload(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array on the device; on CUDA without waiting for what the device is at."""
    host = torch.from_numpy(array)
    return locked(host).to(device, non_blocking=True) if device.type == "cuda" else host.to(device)


def locked(host: Tensor) -> Tensor:
    """A copy in page-locked memory, from which a device fetches by itself."""
    return _staging(host.shape, host.dtype).copy_(host)


def download(rows: Tensor, sizes: Sequence[int]) -> list[NDArray[Any]]:
    """float32 or float64 (N, D), cut along N into arrays of these sizes; neighbours share memory, one after another."""
    if not rows.is_cuda:
        return _cut(rows.cpu().numpy(), sizes)
    found: list[NDArray[Any]] = []
    under_way: deque[tuple[Tensor, torch.cuda.Event, Sequence[int]]] = deque()
    start = 0
    for group in grouped(sizes, most=PIECE_BYTES // max(rows.shape[1] * rows.element_size(), 1)):
        part = rows[start : start + sum(group)]  # (n, D)
        start += len(part)
        buffer = _staging(part.shape, part.dtype).copy_(part, non_blocking=True)
        crossed = torch.cuda.Event()  # type: ignore[no-untyped-call]
        crossed.record(torch.cuda.current_stream(part.device))
        under_way.append((buffer, crossed, group))
        if len(under_way) == AHEAD:
            found += _landed(*under_way.popleft())
    while under_way:
        found += _landed(*under_way.popleft())
    return found


def grouped(sizes: Sequence[int], *, most: int) -> Iterator[list[int]]:
    """Neighbours together while they come to `most` or less; a larger one is alone."""
    group: list[int] = []
    held = 0
    for size in sizes:
        if group and held + size > most:
            yield group
            group, held = [], 0
        group.append(size)
        held += size
    if group:
        yield group


def _landed(buffer: Tensor, crossed: torch.cuda.Event, sizes: Sequence[int]) -> list[NDArray[Any]]:
    crossed.synchronize()
    # NumPy asks for huge pages, torch does not: the first touch of fresh memory is what takes time here.
    own = np.empty(tuple(buffer.shape), dtype=np.float64 if buffer.dtype == torch.float64 else np.float32)
    torch.from_numpy(own).copy_(buffer)  # with all threads
    return _cut(own, sizes)


def _cut(array: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [array[start:end] for start, end in pairwise(ends)]


def _staging(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Page-locked, unless empty, too large for that, or refused by the system: copies are then slower, not wrong."""
    if 0 < math.prod(shape) * dtype.itemsize <= PIECE_BYTES and torch.cuda.is_available():
        try:
            return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)
        except RuntimeError:
            pass
    return torch.empty(tuple(shape), dtype=dtype)
