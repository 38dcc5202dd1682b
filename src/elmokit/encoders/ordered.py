"""Batches come in any order, results leave in the order of the input."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.encoders.batches import BatchRunner, Placed
from elmokit.encoders.choice import Choice
from elmokit.encoders.shape import Vectors
from elmokit.text import Sentence


class Embedding(NamedTuple):
    """One sentence and its vectors, as `stream` yields them."""

    sentence: Sentence
    vectors: Vectors  # (T, D), or (L, T, D) for layers="all"


def in_order(
    batches: Iterable[list[Placed]],
    runner: BatchRunner,
    choice: Choice,
    shape: Callable[[Tensor, Tensor], list[Vectors]],
) -> Iterator[Embedding]:
    """Run the batches; `shape` turns what was chosen of a batch into one array per sentence."""
    apply = choice.on(runner.device, runner.dtype)

    @torch.inference_mode()
    def run(batch: list[Placed]) -> list[Vectors]:
        return shape(*apply(runner.stack([sentence for _, sentence in batch])))

    waiting: dict[int, Embedding] = {}
    due = 0
    for batch in batches:
        for part, made in runner.fitted(batch, run):
            for (position, sentence), vectors in zip(part, made, strict=True):
                waiting[position] = Embedding(sentence, vectors)
        while due in waiting:
            yield waiting.pop(due)
            due += 1
