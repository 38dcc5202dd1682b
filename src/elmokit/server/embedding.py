"""Sentences of many requests in one batch, each with its own choice of layers, pooling and length.

The numbers are those of `Encoder.encode` and `encode_tokens`: the model is run and its layers are chosen by the same
functions, and what else is in the batch does not change a sentence's vectors.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from elmokit.batch import plan_batches
from elmokit.encoders import Encoder
from elmokit.encoders.batches import BatchRunner, Placed
from elmokit.encoders.results import Choice, Vectors, per_sentence, pooled
from elmokit.layers import LayerChoice, LayerStack, unit_rows
from elmokit.server.jobs import Divisible
from elmokit.server.lanes import lane
from elmokit.text import Sentence

Pooling = Literal["mean", "max", "first", "last", "none"]


@dataclass(frozen=True, slots=True)
class Shaping:
    """What becomes of a sentence's layers: `pooling` "none" keeps a vector per token."""

    layers: LayerChoice
    pooling: Pooling = "mean"
    normalise: bool = False

    def arrays(self, stack: LayerStack, runner: BatchRunner) -> list[Vectors]:
        """An array per sentence of the batch: (D,) or (L, D) pooled, (T, D) or (L, T, D) not."""
        values, mask = Choice(self.layers).on(runner.device, runner.dtype)(stack)
        if self.pooling == "mean":
            return pooled(values, mask, normalise=self.normalise)
        if self.pooling == "none":
            return per_sentence(values, mask, normalise=self.normalise)
        made = [_POOLS[self.pooling](tokens) for tokens in per_sentence(values, mask)]
        return [unit_rows(vector) for vector in made] if self.normalise else made


def _of_tokens(reduce: Callable[[Vectors], Vectors]) -> Callable[[Vectors], Vectors]:
    """The same with zeros for a sentence without tokens. (..., T, D) to (..., D)"""
    return lambda tokens: reduce(tokens) if tokens.shape[-2] else np.zeros_like(tokens.sum(axis=-2))


_POOLS: dict[str, Callable[[Vectors], Vectors]] = {
    "max": _of_tokens(lambda tokens: tokens.max(axis=-2)),
    "first": _of_tokens(lambda tokens: tokens[..., 0, :]),
    "last": _of_tokens(lambda tokens: tokens[..., -1, :]),
}


@dataclass(frozen=True, slots=True)
class Piece:
    """One sentence of a request."""

    number: int
    sentence: Sentence

    def __len__(self) -> int:
        return len(self.sentence) + 2  # with its boundaries


class Embedding(Divisible):
    """The sentences of one request. Its result is a list of arrays in their order."""

    def __init__(
        self, encoder: Encoder, sentences: Sequence[Sentence], shaping: Shaping, *, deadline: float, patience: float
    ) -> None:
        pieces = [Piece(number, sentence) for number, sentence in enumerate(sentences)]
        super().__init__(sum(map(len, pieces)), deadline=deadline, patience=patience)
        self.place, self.shaping = encoder, shaping
        self.pieces = deque(sorted(pieces, key=len, reverse=True))  # like lengths together
        self.found: list[Vectors | None] = [None] * len(pieces)

    def result(self) -> list[Any]:
        return self.found


@dataclass(frozen=True)
class Batch:
    """What runs together now: pieces of jobs for one encoder."""

    work: Sequence[tuple[Embedding, Sequence[Piece]]]

    @cached_property
    def items(self) -> list[tuple[Embedding, Piece]]:
        return [(job, piece) for job, pieces in self.work for piece in pieces]

    @torch.inference_mode()
    def run(self, budget: int) -> None:
        """Every job gets the arrays of its pieces."""
        items = self.items
        runner = runner_of(items[0][0].place)

        def run(part: list[Placed]) -> list[Vectors]:
            return self._shaped(runner.stack([sentence for _, sentence in part]), part, runner)

        for batch in plan_batches([piece.sentence for _, piece in items], batch_tokens=budget):
            wanted = [(at, sentence) for at, sentence in batch if not items[at][0].cancelled]
            if not wanted:
                continue
            for part, made in runner.fitted(wanted, run):
                for (at, _), vectors in zip(part, made, strict=True):
                    job, piece = items[at]
                    job.found[piece.number] = vectors

    def _shaped(self, stack: LayerStack, part: list[Placed], runner: BatchRunner) -> list[Vectors]:
        rows: dict[Shaping, list[int]] = {}
        for row, (at, _) in enumerate(part):
            rows.setdefault(self.items[at][0].shaping, []).append(row)
        if len(rows) == 1:
            return next(iter(rows)).arrays(stack, runner)
        found: dict[int, Vectors] = {}
        for shaping, some in rows.items():
            few = replace(stack, values=stack.values[:, some], mask=stack.mask[some])
            found.update(zip(some, shaping.arrays(few, runner), strict=True))
        return [found[row] for row in range(len(part))]


def lanes_of(encoder: Encoder, most: int) -> int:
    """How many batches of an encoder may run at once, `most` or fewer."""
    return len(encoder.placed().twins(most))


def runner_of(encoder: Encoder) -> BatchRunner:
    """The runner for this thread: every lane has its own."""
    number = lane()
    return encoder.placed().twins(number + 1)[number]


def run_embeddings(work: list[tuple[Any, list[Any]]], budget: int) -> None:
    """For the model thread and its lanes."""
    Batch(work).run(budget)
