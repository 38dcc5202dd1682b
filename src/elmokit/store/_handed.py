"""Work handed to threads in the order of the input, and what of it is on the disk."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Self

from elmokit.formats.resumable import Chunk


class InOrder:
    """Futures that end one after another; `committed` hears of each chunk once it is kept.

    What was handed over is done, even if the block of code that hands it over ends with an error.
    """

    def __init__(self, committed: Callable[[Chunk], None], *threads: ThreadPoolExecutor) -> None:
        """The threads are ended in this order, so those that others wait for come first."""
        self.committed, self._threads = committed, threads
        self._under_way: deque[tuple[Chunk | None, Future[None]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for thread in self._threads:
            thread.shutdown()
        with suppress(Exception) if kind is not None else nullcontext():
            self._settle(0)

    def _hand(self, future: "Future[None]", chunk: Chunk | None = None) -> None:
        self._under_way.append((chunk, future))

    def _settle(self, most: int) -> None:
        """Waits until at most so much is under way, and says what was committed."""
        while self._under_way and (len(self._under_way) > most or self._under_way[0][1].done()):
            chunk, future = self._under_way.popleft()
            future.result()
            if chunk is not None:
                self.committed(chunk)
