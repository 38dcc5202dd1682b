"""`BatchRunner`: a model in one place, which makes a `LayerStack` of a batch and copes with too little memory.

Runners may be called from many threads. What they share is immutable, or used under a `Turn`.
"""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from elmokit.errors import ElmokitError
from elmokit.layers import LayerStack
from elmokit.text import Sentence
from elmokit.text.packed import Ints, Packed

M = TypeVar("M")
Placed = tuple[int, Sentence]  # a sentence and its position in the input
Part = TypeVar("Part", list[tuple[int, Sentence]], Ints)
Place = tuple[torch.device, torch.dtype]
FALLBACKS = {"cpu": "dtype='int8', where the model has it"}
ELSEWHERE = "device='cpu' or dtype='bfloat16'"
OTHERS = 2  # places besides a model's own in which it stays built


class Turn:
    """`with turn:` lets one thread at a time use what several share.

    On CUDA work only begins when it is called for, so a thread that runs in another stream than the thread before it
    also waits, on the device, for what that one began. A copy, or one in another process, is a turn of its own.

    It is also for work that keeps Python or all cores busy, of which threads at once get less done than one.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device if device is not None and device.type == "cuda" else None
        self.stream: torch.cuda.Stream | None = None  # where it was used last
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.device is not None:
            stream = torch.cuda.current_stream(self.device)
            if self.stream is not None and self.stream != stream:
                stream.wait_stream(self.stream)
            self.stream = stream

    def __exit__(self, *error: object) -> None:
        self.lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turn, (self.device,)


class BatchRunner(ABC):
    """A model on one device, in one number type. Each encoder has its own kind; none of them makes gradients."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.apart = device.type == "cuda"  # it works by itself, while its caller is at something else
        self.limit: int | None = None  # positions that fitted into memory last time it was short

    @abstractmethod
    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        """All layers of one batch, exactly as given. (L, B, T, D)"""

    def window(self, sentences: Packed) -> Callable[[Ints], LayerStack] | None:
        """A function that runs some of these sentences, the longest first, by their numbers.

        It gives all layers of their words alone, one sentence after another, (L, 1, N, D). None: there is no such.
        """
        return None

    def twins(self, count: int) -> "Sequence[BatchRunner]":
        """So many runners that may run at once, this one among them, with the same weights; fewer if it has no more."""
        return [self]

    def fitted(self, batch: list[Placed], run: Callable[[list[Placed]], M]) -> Iterator[tuple[list[Placed], M]]:
        """`run` over the batch, or over smaller and smaller parts of it where there is too little memory."""
        return self.fitted_by(positions, batch, run)

    def fitted_by(
        self, positions: Callable[[Part], int], batch: Part, run: Callable[[Part], M]
    ) -> Iterator[tuple[Part, M]]:
        """The same for a batch of any kind, whose `positions` come to so many."""
        waiting = [batch]
        while waiting:
            part, limit = waiting.pop(), self.limit
            if limit is None or len(part) == 1 or positions(part) <= limit:
                short = False
                try:
                    done = run(part)
                except (MemoryError, RuntimeError) as error:
                    if not _out_of_memory(error):
                        raise
                    short = True
                    if len(part) == 1:
                        raise ElmokitError(
                            f"a sentence of {positions(part) - 2} tokens does not fit into the memory of "
                            f"{self.device}; split it, or run with {FALLBACKS.get(self.device.type, ELSEWHERE)}"
                        ) from error
                if not short:
                    yield part, done
                    continue
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                known = self.limit  # another thread may have found a lower one
                self.limit = min(positions(part) // 2, positions(part) if known is None else known)
            half = len(part) // 2
            waiting += [part[half:], part[:half]]


class Built:
    """A model's runners: the one in its own place, and in the few others where it ran last. A copy starts without."""

    def __init__(self) -> None:
        self.runners: OrderedDict[Place, BatchRunner] = OrderedDict()  # oldest use first
        self.turn, self.building = Turn(), Turn()

    def find(
        self, place: Place, build: Callable[[torch.device, torch.dtype], BatchRunner], *, home: Place
    ) -> BatchRunner:
        """The runner in this place, built once however many threads ask for it."""
        if (runner := self._known(place)) is not None:
            return runner
        with self.building:
            if (runner := self._known(place)) is None:  # another thread may have built it meanwhile
                runner = build(*place)
                if place[0].type == "cuda":  # whoever comes next may run in another stream
                    torch.cuda.current_stream(place[0]).synchronize()
                with self.turn:
                    self.runners[place] = runner
                    for old in [other for other in self.runners if other != home][:-OTHERS]:
                        del self.runners[old]
        return runner

    def _known(self, place: Place) -> BatchRunner | None:
        with self.turn:
            if (runner := self.runners.get(place)) is not None:
                self.runners.move_to_end(place)
            return runner

    def all(self) -> list[BatchRunner]:
        with self.turn:
            return list(self.runners.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return Built, ()


def _out_of_memory(error: BaseException) -> bool:
    """Python's and NumPy's errors, CUDA's, and torch's on a CPU, which has no kind of its own."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def positions(batch: Sequence[Placed]) -> int:
    """What a batch takes, padding and boundaries included."""
    return len(batch) * max(len(sentence) + 2 for _, sentence in batch)
