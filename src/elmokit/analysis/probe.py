"""A linear probe: how much of a label stands in a frozen vector for a linear classifier to read.

Multinomial logistic regression on standardised features with an L2 penalty. The problem is convex and L-BFGS solves it,
so there is no seed, no learning rate and no order of examples to be lucky with.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.encoders.places import pick_device
from elmokit.errors import InputError

Features = NDArray[np.float16] | NDArray[np.float32]
ROWS = 65_536  # features turned into float32 at once; all of them need not fit into the device's memory


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """`l2` is on the squared weights (not the biases), beside the mean loss of an example.

    On a held-out tenth of EWT's training text 1e-4 and 1e-3 do alike for UPOS, and more does worse; with 1e-5 a probe
    begins to learn its text by heart.
    """

    l2: float = 1e-3
    iterations: int = 100
    tolerance: float = 1e-5  # stop when no part of the gradient is larger
    device: str = "auto"


class LinearProbe:
    """A trained probe: features to the most likely of K classes."""

    def __init__(self, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor) -> None:
        self.weight, self.bias = weight, bias  # (K, D), (K,)
        self.mean, self.scale = mean, scale  # (D,), (D,)

    def scores(self, features: Features) -> Tensor:
        """Log probabilities. (N, K)"""
        parts = [torch.log_softmax(self._logits(part), dim=1) for part in _parts(features, self.weight.device)]
        return torch.cat(parts) if parts else self.weight.new_zeros(0, len(self.bias))

    def predict(self, features: Features) -> NDArray[np.int64]:
        """The class of each row. (N,)"""
        return np.asarray(self.scores(features).argmax(dim=1).cpu().numpy())

    def accuracy(self, features: Features, labels: NDArray[np.int64]) -> float:
        return float((self.predict(features) == labels).mean()) if len(labels) else 0.0

    def _logits(self, part: Tensor) -> Tensor:
        return torch.addmm(self.bias, (part - self.mean) / self.scale, self.weight.T)  # (n, K)


def fit_probe(
    features: Features,
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    config: ProbeConfig | None = None,
    told: Callable[[int, float], None] | None = None,
) -> LinearProbe:
    """Train on rows (N, D) and their classes (N,), each below `n_classes`. `told` hears (evaluation, loss)."""
    config = config or ProbeConfig()
    if features.ndim != 2 or len(features) != len(labels) or not len(labels):
        raise InputError(f"features of shape {features.shape} for {len(labels)} labels; expected a row for each label")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(f"classes from {labels.min()} to {labels.max()}, expected 0 to {n_classes - 1}")
    device = pick_device(config.device)
    mean, scale = _moments(features, device)
    weight = torch.zeros(n_classes, features.shape[1], device=device, requires_grad=True)  # (K, D)
    bias = torch.zeros(n_classes, device=device, requires_grad=True)  # (K,)
    probe = LinearProbe(weight, bias, mean, scale)
    targets = torch.from_numpy(labels).to(device)  # (N,)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=config.iterations,
        max_eval=2 * config.iterations,
        tolerance_grad=config.tolerance,
        tolerance_change=1e-9,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    evaluations = 0

    def evaluate() -> Tensor:
        nonlocal evaluations
        optimizer.zero_grad()
        total = config.l2 * weight.square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        at = 0
        for part in _parts(features, device):
            wanted = targets[at : at + len(part)]
            at += len(part)
            loss = nn.functional.cross_entropy(probe._logits(part), wanted, reduction="sum") / len(targets)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total.detach() + loss.detach()
        evaluations += 1
        if told is not None:
            told(evaluations, float(total))
        return total

    optimizer.step(evaluate)  # type: ignore[no-untyped-call]
    return LinearProbe(weight.detach(), bias.detach(), mean, scale)


def _moments(features: Features, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature; a constant one keeps its scale. (D,), (D,)"""
    total = torch.zeros(features.shape[1], dtype=torch.float64, device=device)  # (D,)
    for part in _parts(features, device):
        total += part.double().sum(dim=0)
    mean = total / len(features)
    squares = torch.zeros_like(mean)
    for part in _parts(features, device):
        squares += (part.double() - mean).square().sum(dim=0)
    scale = (squares / len(features)).sqrt()  # (D,)
    scale = torch.where(scale > 1e-6, scale, torch.ones_like(scale))
    return mean.float(), scale.float()


def _parts(features: Features, device: torch.device) -> Iterator[Tensor]:
    """Stretches of rows in float32."""
    for start in range(0, len(features), ROWS):
        yield torch.from_numpy(np.ascontiguousarray(features[start : start + ROWS])).to(device).float()  # (n, D)
