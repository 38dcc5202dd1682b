"""Examples to batches of words on a device, in random order for training or by size for predictions."""

from collections.abc import Iterator, Sequence
from typing import Any, Generic

import numpy as np
import torch

from elmokit.tasks.layers import LayerSource, Told
from elmokit.tasks.task import Batch, E, Network, P, Task
from elmokit.tasks.words import WordReader

POOL = 50  # batches whose examples are sorted by size together: little padding, still a random order
PREDICT_BATCH, PREDICT_TOKENS = 64, 1 << 15  # examples, and positions with padding, unless one has more


class Feeder(Generic[E, P]):
    """Makes the batches of one task."""

    def __init__(
        self, task: Task[E, P], reader: WordReader, layers: LayerSource | None, *, device: torch.device
    ) -> None:
        self.task, self.reader, self.layers, self.device = task, reader, layers, device

    def batch(self, examples: Sequence[E]) -> Batch[E]:
        """The examples in the order given; where they are documents, there is one."""
        if self.task.documents:
            groups = [example.sentences for example in examples]
        else:
            groups = list(zip(*(example.sentences for example in examples), strict=True))
        words = [
            self.reader.batch(
                group,
                stack=None if self.layers is None or not group else self.layers.stack(group, self.device),
                device=self.device,
            )
            for group in groups
        ]
        return Batch(examples, tuple(words))

    def shuffled(self, examples: Sequence[E], batch_size: int, order: np.random.Generator) -> Iterator[list[E]]:
        """Every example that has words, once, in random batches of like size."""
        sizes = [self.task.size(example) for example in examples]
        for picked in shuffled_batches(sizes, 1 if self.task.documents else batch_size, order):
            yield [examples[k] for k in picked]

    def predict(
        self,
        network: Network[E, P],
        examples: Sequence[E],
        *,
        batch_size: int = PREDICT_BATCH,
        told: Told | None = None,
    ) -> list[P]:
        """A prediction for every example, in order; `told` hears how many of how many are done."""
        sizes = [self.task.size(example) for example in examples]
        by_size = [int(k) for k in np.argsort(sizes, kind="stable")]
        step, end = 1 if self.task.documents else batch_size, 0
        found: list[Any] = [None] * len(examples)
        training = network.training
        if training:  # a network at work is shared by threads and stays as it is
            network.eval()
        with torch.no_grad():
            while picked := by_size[end : end + step]:
                while len(picked) > 1 and len(picked) * sizes[picked[-1]] > PREDICT_TOKENS:
                    picked.pop()  # the longest
                end += len(picked)
                batch = self.batch([examples[k] for k in picked])
                for k, prediction in zip(picked, network.predict(batch), strict=True):
                    found[k] = prediction
                if told is not None:
                    told(end, len(examples))
        if training:
            network.train()
        return found


def shuffled_batches(sizes: Sequence[int], batch_size: int, order: np.random.Generator) -> Iterator[list[int]]:
    """Every number whose size is not 0, once, in random batches of like size."""
    shuffled = order.permutation([k for k, size in enumerate(sizes) if size])
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), batch_size * POOL):
        pool = sorted(shuffled[start : start + batch_size * POOL].tolist(), key=lambda k: sizes[k])
        batches += [pool[k : k + batch_size] for k in range(0, len(pool), batch_size)]
    for k in order.permutation(len(batches)):
        yield batches[k]
