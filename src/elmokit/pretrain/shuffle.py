"""A shuffled order of any number of items that takes no memory: a keyed permutation computed where it is needed.

Four rounds of a Feistel network over the smallest even power of two that holds n, walked until inside the range.
"""

import numpy as np
from numpy.typing import NDArray


def shuffled(which: NDArray[np.int64], n: int, *, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """Where the places `which` of 0..n-1 are sent by the seed's permutation of 0..n-1."""
    half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    keys = np.random.default_rng(seed).integers(0, 2**63, size=4, dtype=np.uint64)
    result = which.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        x = result[outside]
        left, right = x >> half, x & low
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & low)
        result[outside] = (left << half) | right
        outside = result >= np.uint64(n)
    return result.astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit finaliser: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.asarray(x ^ (x >> np.uint64(33)))
