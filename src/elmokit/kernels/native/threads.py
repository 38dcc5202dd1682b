"""Calls into C side by side, by as many threads as torch may use; they hold no lock of Python's meanwhile."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import Empty, SimpleQueue

import torch


def side_by_side(tasks: Sequence[Callable[[], int]]) -> None:
    """Run all; each returns 0, or something else where memory was lacking."""
    waiting: SimpleQueue[Callable[[], int]] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    others = [_threads(os.getpid()).submit(_work, waiting) for _ in range(min(thread_count(), len(tasks)) - 1)]
    lacking = _work(waiting)
    for other in others:
        lacking |= other.result()
    if lacking:
        raise MemoryError("not enough memory for a batch of sentences; embed fewer at a time")


def thread_count() -> int:
    return torch.get_num_threads()


def _work(waiting: SimpleQueue[Callable[[], int]]) -> int:
    lacking = 0
    while True:
        try:
            lacking |= waiting.get_nowait()()
        except Empty:
            return lacking


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Of this process: threads do not live on in a fork."""
    return ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="elmokit")
