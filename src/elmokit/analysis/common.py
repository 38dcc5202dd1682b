"""The common space of two models' words, where translations are searched (Artetxe, Labaka and Agirre 2018, AAAI).

An orthogonal map keeps what a model finds alike, but two models find different things alike: a few strong directions,
such as frequency, hide the rest. So each side's anchors are whitened, layer by layer; the directions in which the pairs
of the seed agree are found (an SVD: canonical correlations); and each direction counts by the root of its correlation.
Both sides change, so it is for comparing words with words. Vectors of text take the orthogonal maps.
"""

import numpy as np
from numpy.typing import NDArray

from elmokit.layers import Vectors

FLOOR = 1e-4  # of the largest variance: directions with less are not stretched further


def common_space(x: Vectors, y: Vectors, places: NDArray[np.int64]) -> tuple[Vectors, Vectors]:
    """Anchors (V, L, D) and (W, L, E) in a space of the smaller width, found from pairs of rows (n, 2)."""
    mapped, keys = [], []
    for layer in range(x.shape[1]):
        a, b = _whitened(x[:, layer]), _whitened(y[:, layer])  # (V, D), (W, E)
        left, agreement, right = np.linalg.svd(a[places[:, 0]].T @ b[places[:, 1]] / len(places), full_matrices=False)
        mapped.append(a @ left * np.sqrt(agreement))
        keys.append(b @ right.T * np.sqrt(agreement))
    return np.stack(mapped, axis=1).astype(np.float32), np.stack(keys, axis=1).astype(np.float32)


def _whitened(rows: Vectors) -> NDArray[np.float64]:
    """Rows (n, D) without correlation between columns, each of variance 1."""
    exact = rows.astype(np.float64)
    variances, directions = np.linalg.eigh(exact.T @ exact / len(exact))
    stretch = 1 / np.sqrt(np.maximum(variances, FLOOR * max(variances[-1], np.finfo(np.float64).tiny)))
    white: NDArray[np.float64] = exact @ (directions * stretch) @ directions.T
    return white
