"""Lanes: threads beside each other, each with its share of torch's threads, for batches that run at once.

torch's own threads share every product and wait for each other after it, some hundred times in a batch. Whatever else
takes a core for a moment (requests, answers, other programs) holds up all of them. Lanes do not wait for each other.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import torch

_here = threading.local()


def lane() -> int:
    """The number of this thread's lane, from 0; 0 for a thread that is none."""
    return getattr(_here, "number", 0)


class Lanes:
    """So many threads; each has as many of torch's threads as are there for it."""

    def __init__(self, lanes: int) -> None:
        usual, numbers, all_there = torch.get_num_threads(), count(), threading.Barrier(lanes)

        def begin() -> None:
            _here.number = next(numbers)
            torch.set_num_threads(max(usual // lanes, 1))
            all_there.wait()

        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="elmokit-lane", initializer=begin)
        for started in [self._pool.submit(int) for _ in range(lanes)]:
            started.result()
        torch.set_num_threads(usual)  # threads that are new to torch begin with what was set last

    def run(self, task: Callable[[], None]) -> None:
        """Runs the task in a lane; returns at once."""
        self._pool.submit(task)

    def close(self) -> None:
        """Ends the threads when they have done what they do now."""
        self._pool.shutdown(wait=False)
