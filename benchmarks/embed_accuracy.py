"""What smaller number types cost, for benchmarks/embed.py: cosines to float32, and what a probe loses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.probe import ProbeConfig, fit_probe

Layers = NDArray[np.float32]  # (L, N, D)


@dataclass(frozen=True)
class Accuracy:
    """Cosine to float32 over the tokens of a text."""

    group: str
    mode: str
    layer: int
    worst: float
    mean: float


@dataclass(frozen=True)
class ProbeChange:
    """Accuracy in per cent on float32 vectors, and what it changes by on those of the mode, in points."""

    mode: str
    layer: int
    exact: float
    change: float


def token_cosines(exact: Layers, found: Layers) -> Iterator[tuple[int, float, float]]:
    """Layer, worst token, mean."""
    for k, (a, b) in enumerate(zip(exact.astype(np.float64), found.astype(np.float64), strict=True)):
        cosines = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))  # (N,)
        yield k, float(cosines.min()), float(cosines.mean())


def probe_changes(
    train: Layers,
    train_labels: NDArray[np.int64],
    dev: Mapping[str, Layers],
    dev_labels: NDArray[np.int64],
    *,
    classes: int,
) -> Iterator[ProbeChange]:
    """A probe of each layer, trained on float32 vectors alone: the other modes must do in their place."""
    for k, features in enumerate(train):
        probe = fit_probe(features, train_labels, classes, config=ProbeConfig(device="cpu"))
        exact = 100 * probe.accuracy(dev["float32"][k], dev_labels)
        for mode, layers in dev.items():
            if mode != "float32":
                yield ProbeChange(mode, k, exact, 100 * probe.accuracy(layers[k], dev_labels) - exact)
