"""What chance alone does to the measures of drift: permutation tests, and the correction for many words.

Occurrences are swapped between the two corpora at random, as many in each as before, and each measure is taken again.
p is the share of swaps, the real one included, that give as much. Of many words some have a small p by chance; q, the p
corrected by Benjamini and Hochberg (1995), is the share of false finds among all words with a q as small.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.layers import Vectors

Labels = NDArray[np.int64]
CLOSE = 1e-6  # values of swaps that differ by rounding alone count as equal


class Chances(NamedTuple):
    """p of each measure."""

    apd: float
    net: float
    prt: float
    jsd: float


def chances_of(first: Vectors, second: Vectors, labels: Labels, *, shuffles: int, seed: int) -> Chances:
    """p of the measures for directions (n, D) and (m, D), two or more of each; `labels` (n + m,) are their groups."""
    both, n, m = np.concatenate([first, second]), len(first), len(second)
    sides = _sides(n, n + m, shuffles, seed)  # (1 + shuffles, n + m), the real one first
    sums = sides @ both  # (1 + shuffles, D)
    others = both.sum(axis=0) - sums
    shares = sides @ np.eye(int(labels.max(initial=0)) + 1, dtype=np.float32)[labels]  # (1 + shuffles, groups)
    rest = np.bincount(labels) - shares
    across = 1 - (sums * others).sum(axis=1) / (n * m)  # (1 + shuffles,), apd
    within = [1 - (np.square(part).sum(axis=1) / k - 1) / (k - 1) for part, k in ((sums, n), (others, m))]
    return Chances(
        _share_as_large(across),
        _share_as_large(across - (within[0] + within[1]) / 2),
        _share_as_large(cosine_distances(sums, others)),  # the length of a sum does not matter
        _share_as_large(_divergences(shares / n, rest / m)),
    )


def false_discovery_rates(chances: Sequence[float]) -> list[float]:
    """q of each p: those of Benjamini and Hochberg, in the same order; never smaller than p, at most 1."""
    p = np.asarray(chances, dtype=float)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return [float(value) for value in q]


def cosine_distances(a: Vectors, b: Vectors) -> Vectors:
    """Cosine distances row by row; 0 from or to nothing. (n,)"""
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = (a * b).sum(axis=1)
    cosines: Vectors = np.divide(products, lengths, out=np.ones_like(products), where=lengths > 0)
    return 1 - cosines


def _sides(n: int, total: int, shuffles: int, seed: int) -> Vectors:
    """1 for the occurrences that are in the first corpus, in each shuffle; the real one is row 0."""
    rng = np.random.default_rng(seed)
    sides = np.zeros((1 + shuffles, total), dtype=np.float32)
    sides[0, :n] = 1
    for row in sides[1:]:
        row[rng.permutation(total)[:n]] = 1
    return sides


def _share_as_large(values: NDArray[np.floating]) -> float:
    """The share of values, the first included, that are as large as the first."""
    return float((values >= values[0] - CLOSE).mean())


def _divergences(first: NDArray[np.floating], second: NDArray[np.floating]) -> NDArray[np.float64]:
    """Jensen-Shannon divergences in bits of shares (S, groups), row by row. (S,)"""
    half = (np.asarray(first, dtype=float) + second) / 2
    found = np.zeros(len(half))
    for shares in (first, second):
        ratio = np.divide(shares, half, out=np.ones_like(half), where=shares > 0)
        found += (shares * np.log2(ratio)).sum(axis=1) / 2
    return found
