"""`BatchRunner`: a model in one place, which makes a `LayerStack` of a batch and copes with too little memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from elmokit.errors import ElmokitError
from elmokit.layers import LayerStack
from elmokit.text import Sentence

M = TypeVar("M")
Placed = tuple[int, Sentence]  # a sentence and its position in the input


class BatchRunner(ABC):
    """A model on one device, in one number type. Each encoder has its own kind; none of them makes gradients."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.limit: int | None = None  # positions that fitted into memory last time it was short

    @abstractmethod
    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        """All layers of one batch, exactly as given. (L, B, T, D)"""

    def fitted(self, batch: list[Placed], run: Callable[[list[Placed]], M]) -> Iterator[tuple[list[Placed], M]]:
        """`run` over the batch, or over smaller and smaller parts of it where the device's memory does not suffice."""
        waiting = [batch]
        while waiting:
            part = waiting.pop()
            if self.limit is None or len(part) == 1 or positions(part) <= self.limit:
                short = False
                try:
                    done = run(part)
                except torch.OutOfMemoryError as error:
                    short = True
                    if len(part) == 1:
                        raise ElmokitError(
                            f"a sentence of {len(part[0][1])} tokens does not fit into the memory of {self.device}; "
                            f"split it, or run with device='cpu' or dtype='bfloat16'"
                        ) from error
                if not short:
                    yield part, done
                    continue
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                self.limit = positions(part) // 2
            half = len(part) // 2
            waiting += [part[half:], part[:half]]


def positions(batch: Sequence[Placed]) -> int:
    """What a batch takes, padding and boundaries included."""
    return len(batch) * max(len(sentence) + 2 for _, sentence in batch)
