"""Calls into C side by side; they hold no lock of Python's meanwhile. As many as torch may use, if it is there."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from queue import Empty, SimpleQueue


def side_by_side(tasks: Sequence[Callable[[], int]]) -> None:
    """Run all; each returns 0, or something else where memory was lacking."""
    waiting: SimpleQueue[Callable[[], int]] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    others: list[Future[int]] = []
    try:
        try:
            for _ in range(min(thread_count(), len(tasks)) - 1):
                others.append(_threads(os.getpid()).submit(_work, waiting))
        except RuntimeError:  # the main thread has ended, and Python starts no more threads: this one does it all
            pass
        lacking = _work(waiting)
    finally:  # when interrupted, too: what C still reads and writes must not be freed
        started = [other for other in others if not other.cancel()]  # the rest waits for threads, and is not needed
        wait(started)
    if lacking or any(other.result() for other in started):
        raise MemoryError("not enough memory for a batch of sentences; embed fewer at a time")


def thread_count() -> int:
    """What torch was told; without torch what OMP_NUM_THREADS says, else one for each core."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_num_threads"):
        return int(torch.get_num_threads())
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if told.isdecimal():
        return max(1, int(told))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
