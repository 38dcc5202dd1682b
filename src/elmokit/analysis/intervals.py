"""Confidence intervals by bootstrap: the data resampled with replacement, and the score measured each time."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SAMPLES = 1000
COVERED = 0.95


class Interval(NamedTuple):
    """The middle 95% of the scores of resampled data."""

    low: float
    high: float


def mean_interval(right: NDArray[np.bool_], groups: NDArray[np.int64] | None = None, *, seed: int = 0) -> Interval:
    """Of a share of right answers (n,). Answers of one group, such as the words of a sentence, are drawn together."""
    if not len(right):
        return Interval(0.0, 0.0)
    numbers = np.arange(len(right)) if groups is None else groups
    hits = np.bincount(numbers, weights=right)  # (groups,)
    sizes = np.bincount(numbers).astype(float)
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(SAMPLES):
        drawn = rng.integers(len(sizes), size=len(sizes))
        scores.append(hits[drawn].sum() / max(sizes[drawn].sum(), 1.0))
    return _middle(scores)


def score_interval(score: Callable[[NDArray[np.int64]], float], n: int, *, seed: int = 0) -> Interval:
    """Of any score of n items; `score` is given the numbers of the items drawn, some of them more than once."""
    rng = np.random.default_rng(seed)
    return _middle([score(rng.integers(n, size=n)) for _ in range(SAMPLES)])


def _middle(scores: list[float]) -> Interval:
    low, high = np.quantile(scores, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    return Interval(float(low), float(high))
