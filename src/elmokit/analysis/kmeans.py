"""k-means on directions: groups of vectors of length 1, each group about its own mean direction."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.layers import Vectors, unit_rows


class Groups(NamedTuple):
    """Which group each vector is in, and the groups' directions; no group is empty."""

    labels: NDArray[np.int64]  # (n,)
    centres: Vectors  # (k, D), of length 1


def group_directions(unit: Vectors, k: int, *, seed: int = 0, starts: int = 4, rounds: int = 50) -> Groups:
    """At most k groups of vectors (n, D) of length 1, the best of several starts; numbered by size, the largest first.

    Starting directions are drawn far from each other (k-means++), so a few runs are enough.
    """
    rng = np.random.default_rng(seed)
    best, best_score = Groups(np.zeros(len(unit), dtype=np.int64), unit_rows(unit.sum(axis=0)[None])), -np.inf
    for _ in range(starts if min(k, len(unit)) > 1 else 0):
        centres = _spread(unit, min(k, len(unit)), rng)
        labels = np.full(len(unit), -1)
        for _ in range(rounds):
            nearest = (unit @ centres.T).argmax(axis=1)  # (n,)
            if (nearest == labels).all():
                break
            labels = nearest
            used = np.unique(labels)  # a group that lost all its vectors is dropped
            labels = np.searchsorted(used, labels)
            sums = np.zeros((len(used), unit.shape[1]), dtype=np.float32)
            np.add.at(sums, labels, unit)
            centres = unit_rows(sums)
        score = float((unit @ centres.T).max(axis=1).sum())
        if score > best_score + 1e-6:
            best, best_score = Groups(labels, centres), score
    order = np.argsort(-np.bincount(best.labels, minlength=len(best.centres)), kind="stable")
    return Groups(np.argsort(order)[best.labels], best.centres[order])


def _spread(unit: Vectors, k: int, rng: np.random.Generator) -> Vectors:
    chosen = [int(rng.integers(len(unit)))]
    far = 1 - unit @ unit[chosen[0]]  # (n,): distance to the nearest that is chosen
    while len(chosen) < k:
        weights = np.maximum(far, 0).astype(np.float64)
        weights[chosen] = 0
        if weights.sum() <= 1e-9:  # all that is left are copies
            break
        chosen.append(int(rng.choice(len(unit), p=weights / weights.sum())))
        far = np.minimum(far, 1 - unit @ unit[chosen[-1]])
    return unit[chosen]
