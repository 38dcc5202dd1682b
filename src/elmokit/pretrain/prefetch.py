"""Data ready before the processor asks: a thread works ahead of the training loop."""

import queue
import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Iterates over `source` in a thread, a few items ahead. An error there is raised here, when its turn comes."""

    def __init__(self, source: Iterator[T], *, depth: int = 4) -> None:
        self._queue: queue.Queue[T | BaseException] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(source,), daemon=True)
        self._thread.start()

    def _work(self, source: Iterator[T]) -> None:
        try:
            for item in source:
                if not self._offer(item):
                    return
        except BaseException as error:  # handed over, not handled
            self._offer(error)

    def _offer(self, item: T | BaseException) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __next__(self) -> T:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
