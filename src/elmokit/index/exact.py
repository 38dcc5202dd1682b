"""Exact search: every stored vector is compared, some thousand at a time.

Vectors are compared by the cosine after the index's mean is subtracted from both: contextual vectors share one large
direction, which would make everything alike. The mean changes as the index grows, so it is subtracted here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.index.segment import Segment
from elmokit.layers import Vectors

BLOCK = 512  # rows in float32 at once: few enough for a processor to keep near, and for their memory to be used again
TINY = 1e-6  # shorter than that is nothing but rounding


class Nearest(NamedTuple):
    """The best rows of each query and how alike they are, the best first; -1 and -inf where there are no more."""

    rows: NDArray[np.int64]  # (Q, k)
    scores: Vectors  # (Q, k)


def centred(vectors: Vectors, mean: Vectors) -> Vectors:
    """Without the mean, and of length 1; what is the mean itself becomes zero. (n, D)"""
    left = np.asarray(vectors, dtype=np.float32) - mean
    lengths = np.sqrt(np.einsum("nd,nd->n", left, left))  # (n,)
    left /= np.where(lengths > TINY, lengths, np.inf)[:, None]
    return left


def cosines(queries: Vectors, rows: Vectors) -> Vectors:
    """Of centred vectors (Q, D) and (n, D): (Q, n). By torch, whose helper threads sleep where there is nothing to do.

    Those of NumPy's library keep their cores busy meanwhile: beside other work a search took ten times as long.
    """
    found: Vectors = torch.mm(torch.from_numpy(queries), torch.from_numpy(rows).T).numpy()
    return found


def scan(segments: Sequence[Segment], queries: Vectors, mean: Vectors, *, k: int, first: int = 0) -> Nearest:
    """The k nearest rows, from row `first` on, of each query (Q, D), which is centred already."""
    best, base = nothing(len(queries), k), 0
    for segment in segments:
        for start in range(max(first - base, 0), len(segment), BLOCK):
            scores = cosines(queries, centred(segment.decode(start, start + BLOCK), mean))  # (Q, n)
            rows = np.arange(base + start, base + start + scores.shape[1])
            best = merge(best, Nearest(np.broadcast_to(rows, scores.shape), scores), k=k)
        base += len(segment)
    return best


def nothing(queries: int, k: int) -> Nearest:
    """What is found before anything is looked at."""
    return Nearest(np.full((queries, k), -1), np.full((queries, k), -np.inf, dtype=np.float32))


def merge(some: Nearest, more: Nearest, *, k: int) -> Nearest:
    """The k best of both; of equal scores, those of the first rows."""
    if more.scores.shape[1] > 4 * k:  # most of a block falls away without being sorted
        part = np.argpartition(-more.scores, k, axis=1)[:, :k]
        worst = np.take_along_axis(more.scores, part, axis=1).min(axis=1)  # (Q,)
        tied = (more.scores >= worst[:, None]).sum(axis=1) > k  # (Q,): the partition has left out equal ones
        part[tied] = np.lexsort((more.rows[tied], -more.scores[tied]), axis=1)[:, :k]
        more = Nearest(np.take_along_axis(more.rows, part, axis=1), np.take_along_axis(more.scores, part, axis=1))
    rows = np.concatenate([some.rows, more.rows], axis=1)
    scores = np.concatenate([some.scores, more.scores], axis=1)
    order = np.lexsort((rows, -scores), axis=1)[:, :k]
    return Nearest(np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1))
