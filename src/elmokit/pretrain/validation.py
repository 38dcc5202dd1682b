"""Held-out perplexity, as vectors are computed later: each sentence from zero state, over the full vocabulary."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.config import Count, Measured
from elmokit.nn.score import score
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.processes import World
from elmokit.pretrain.windows import BOS_ID, EOS_ID, UNK_ID, Sentences

Ints = NDArray[np.int64]
BATCH_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Perplexity:
    """Forward, backward, and their geometric mean (the exponential of the mean of both losses)."""

    forward: Measured | None
    backward: Measured | None
    mean: Measured
    predictions: Count

    @property
    def sides(self) -> dict[str, float]:
        """Those of the directions that the model has."""
        both = {"forward": self.forward, "backward": self.backward}
        return {name: value for name, value in both.items() if value is not None}

    def facts(self) -> dict[str, float]:
        """As the log names them."""
        return {"perplexity": self.mean, **{f"perplexity_{name}": value for name, value in self.sides.items()}}

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({', '.join(f'{name} {value:.1f}' for name, value in self.sides.items())})"


class HeldOutBatch(NamedTuple):
    types: Ints  # (U,) word-type ids
    which: Ints  # (B, T) into types, boundaries included
    lengths: Ints  # (B,)
    targets: Ints  # (B, T)


class Validation:
    """A fixed sample of held-out sentences, spread evenly over them, in batches of similar length.

    Without any, perplexities are NaN.
    """

    def __init__(self, sentences: Sentences, *, vocabulary: int, tokens: int, codes: Callable[[Ints], Tensor]) -> None:
        self.codes = codes
        share = min(1.0, tokens / max(1, sentences.n_tokens))
        n_chosen = min(len(sentences), math.ceil(len(sentences) * share))
        chosen = np.arange(n_chosen) * len(sentences) // max(n_chosen, 1)
        words, lengths = sentences.gather(chosen)
        starts = np.cumsum(lengths) - lengths
        order = np.argsort(-lengths, kind="stable")
        self.batches: list[HeldOutBatch] = []
        at = 0
        while at < len(order):
            n = max(1, BATCH_TOKENS // int(lengths[order[at]] + 2))
            self.batches.append(
                _batch([words[starts[k] : starts[k] + lengths[k]] for k in order[at : at + n]], vocabulary)
            )
            at += n

    def __call__(
        self, objective: Objective, world: World, *, tell: Callable[[int, int], None] | None = None
    ) -> Perplexity:
        """`tell` is called with how many batches are done, of how many."""
        finished, softmax = objective.finished()
        model = copy.deepcopy(finished).to(objective.dtype).eval()
        sums: dict[str, float] = dict.fromkeys(model.config.directions, 0.0)
        count = 0
        mine = self.batches[world.rank :: world.size]
        for done, batch in enumerate(mine, 1):
            index, targets = (torch.from_numpy(a).to(world.device) for a in (batch.which, batch.targets))
            scores = score(model, softmax, self.codes(batch.types), index, batch.lengths, targets)
            for direction in sums:
                values = scores.forward if direction == "forward" else scores.backward
                assert values is not None
                sums[direction] += float(values.double().sum())
            count += int((batch.lengths - 1).sum())
            if tell is not None:
                tell(done, len(mine))
        *totals, n = world.total([*sums.values(), float(count)])
        losses = {direction: total / n if n else math.nan for direction, total in zip(sums, totals, strict=True)}
        by_direction = {direction: _exp(loss) for direction, loss in losses.items()}
        mean = _exp(sum(losses.values()) / len(losses))
        return Perplexity(by_direction.get("forward"), by_direction.get("backward"), mean, int(n))


def _exp(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def _batch(sentences: list[NDArray[np.uint32]], vocabulary: int) -> HeldOutBatch:
    lengths = np.array([len(s) + 2 for s in sentences], dtype=np.int64)
    ids = np.zeros((len(sentences), int(lengths.max())), dtype=np.int64)  # (B, T), padded with <S>
    ids[:, 0] = BOS_ID
    for row, sentence in zip(ids, sentences, strict=True):
        row[1 : len(sentence) + 1] = sentence
        row[len(sentence) + 1] = EOS_ID
    types, index = np.unique(ids, return_inverse=True)
    return HeldOutBatch(types, index.reshape(ids.shape), lengths, np.where(ids < vocabulary, ids, UNK_ID))
