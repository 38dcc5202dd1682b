"""Rows from a device to NumPy arrays, on CUDA through page-locked memory and beside what the device computes.

What is handed out is memory that nobody writes to as long as someone has it. Page-locked memory is handed out as it is
where the taker says that it will soon be done with it, and up to LENT_BYTES; otherwise it is copied out.
"""

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.kernels.transfers import PIECE_BYTES as PIECE_BYTES
from elmokit.kernels.transfers import locked as locked
from elmokit.kernels.transfers import staging
from elmokit.kernels.transfers import upload as upload

LENT_BYTES = 2 << 30  # page-locked memory in the hands of takers at most
AHEAD = 2  # pieces under way where they are copied out: one crosses over while the one before is copied


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows on their way; `sizes` is how they are cut."""

    buffer: Tensor  # (n, D)
    crossed: "torch.cuda.Event | None"  # None: they are there
    sizes: Sequence[int]

    def landed(self, *, lend: bool = False) -> NDArray[Any]:
        """Waits for them. With `lend`, the page-locked memory itself. (n, D)"""
        if self.crossed is None:
            return self.buffer.numpy()
        self.crossed.synchronize()
        array: NDArray[Any] = self.buffer.numpy()
        if lend and LENT.take(array):
            return array
        # NumPy asks for huge pages, torch does not: the first touch of fresh memory is what takes time here.
        own = np.empty_like(array)
        torch.from_numpy(own).copy_(self.buffer)  # with all threads
        return own


class Lent:
    """How much page-locked memory takers have; it comes back when their arrays are gone, to be used again."""

    def __init__(self) -> None:
        self.bytes, self.lock = 0, threading.Lock()

    def take(self, array: NDArray[Any]) -> bool:
        with self.lock:
            if self.bytes + array.nbytes > LENT_BYTES:
                return False
            self.bytes += array.nbytes
        weakref.finalize(array, self._back, array.nbytes).atexit = False
        return True

    def _back(self, size: int) -> None:
        with self.lock:
            self.bytes -= size


LENT = Lent()


def send(rows: Tensor, sizes: Sequence[int]) -> Iterator[Piece]:
    """Rows (N, D), cut along N into groups of neighbours of about PIECE_BYTES; they cross in a stream of their own.

    A piece begins to cross when it is taken from here.
    """
    most = PIECE_BYTES // max(rows.shape[1] * rows.element_size(), 1)
    start = 0
    aside = before = None
    if rows.is_cuda:
        before = torch.cuda.current_stream(rows.device)
        aside = _aside(rows.device)
        aside.wait_stream(before)
    for group in grouped(sizes, most=most):
        part = rows[start : start + sum(group)]  # (n, D)
        start += len(part)
        if aside is None:
            yield Piece(part.cpu(), None, group)
            continue
        with torch.cuda.stream(aside):
            buffer = staging(part.shape, part.dtype).copy_(part, non_blocking=True)
            crossed = torch.cuda.Event()  # type: ignore[no-untyped-call]
            crossed.record(aside)
        rows.record_stream(aside)  # so that its memory is not used again before
        yield Piece(buffer, crossed, group)


def download(rows: Tensor, sizes: Sequence[int]) -> list[NDArray[Any]]:
    """float32 or float64 (N, D), cut along N into arrays of these sizes; neighbours share memory, one after another."""
    if not rows.is_cuda:
        return cut(rows.cpu().numpy(), sizes)
    found: list[NDArray[Any]] = []
    under_way: deque[Piece] = deque()
    for piece in send(rows, sizes):
        under_way.append(piece)
        if len(under_way) == AHEAD:
            found += cut(under_way[0].landed(), under_way.popleft().sizes)
    while under_way:
        found += cut(under_way[0].landed(), under_way.popleft().sizes)
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


def cut(array: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """One after another along the first axis."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [array[start:end] for start, end in pairwise(ends)]


_ASIDE: dict[torch.device, "torch.cuda.Stream"] = {}


def _aside(device: torch.device) -> "torch.cuda.Stream":
    """The stream in which numbers leave a device."""
    stream = _ASIDE.get(device)
    if stream is None:
        stream = _ASIDE.setdefault(device, torch.cuda.Stream(device))  # type: ignore[no-untyped-call]
    return stream
