"""A linear probe: how well a linear classifier reads a label from a frozen vector, or from a learned mix of layers.

Multinomial logistic regression on standardised features with an L2 penalty. The problem is convex and L-BFGS solves it,
so the result depends on no seed, learning rate or order of examples.

The mix of `MixedProbe` is standardised as a single layer is, whatever its weights: otherwise the layer with the longest
vectors would escape the penalty. With all weight on one layer this is that layer's probe. There is no gamma, since
standardising undoes it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.encoders.places import pick_device
from elmokit.errors import InputError

Features = NDArray[np.float16] | NDArray[np.float32] | Tensor  # tensors may be on the device already
Told = Callable[[int, float], None]  # evaluation, loss
ROWS = 65_536  # features turned into float32 at once; all of them need not fit into the device's memory

# Features in float32 are held up to this size, rather than converted for each evaluation; on a GPU, up to half of what
# is free there, since bringing them again takes far longer than an evaluation.
HELD_BYTES = 1 << 30
WARM_UP = 0.2  # of the iterations go to the classifier alone, on the average, before the weights move


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """`l2` is on the squared weights (not the biases), beside the mean loss of an example.

    UPOS on a held-out tenth of EWT's training text, layer 1 of `en` of 0.1.0: 95.79 with 1e-3, 95.96 with 3e-4,
    96.00 with 1e-4; with 1e-5 a probe begins to memorise its text.
    """

    l2: float = 3e-4
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
        parts = [torch.log_softmax(self.logits(part), dim=1) for part in float_parts(features, self.weight.device)]
        return torch.cat(parts) if parts else self.weight.new_zeros(0, len(self.bias))

    def predict(self, features: Features) -> NDArray[np.int64]:
        """The class of each row. (N,)"""
        return np.asarray(self.scores(features).argmax(dim=1).cpu().numpy())

    def accuracy(self, features: Features, labels: NDArray[np.int64]) -> float:
        return float((self.predict(features) == labels).mean()) if len(labels) else 0.0

    def logits(self, part: Tensor) -> Tensor:
        """Scores before the softmax of rows on the probe's device. (n, K)"""
        weight = self.weight / self.scale  # standardising the few weights is less work than the many rows
        return torch.addmm(self.bias - weight @ self.mean, part, weight.T)


def fit_probe(
    features: Features,
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    config: ProbeConfig | None = None,
    told: Told | None = None,
) -> LinearProbe:
    """Train on rows (N, D) and their classes (N,), each below `n_classes`. `told` is called with (evaluation, loss)."""
    config = config or ProbeConfig()
    check_labels(features, labels, n_classes, axes=2)
    device = pick_device(config.device)
    parts = held_parts(features, device)
    mean, scale = moments(parts, len(features))
    probe = blank_probe(n_classes, mean, scale)
    minimise(
        [probe.weight, probe.bias],
        lambda: (probe.logits(part) for part in parts()),
        torch.from_numpy(labels).to(device),
        penalty=lambda: config.l2 * probe.weight.square().sum(),
        config=config,
        told=told,
    )
    return LinearProbe(probe.weight.detach(), probe.bias.detach(), mean, scale)


def check_labels(features: Features, labels: NDArray[np.int64], n_classes: int, *, axes: int) -> None:
    """Refuse features without a label each, and labels that are none of the classes."""
    if features.ndim != axes or len(features) != len(labels) or not len(labels):
        raise InputError(f"features of shape {features.shape} for {len(labels)} labels; expected a row for each label")
    if labels.min() < 0 or labels.max() >= n_classes:
        raise InputError(f"classes from {labels.min()} to {labels.max()}, expected 0 to {n_classes - 1}")


def blank_probe(n_classes: int, mean: Tensor, scale: Tensor) -> LinearProbe:
    """A probe that knows nothing yet, ready to be trained."""
    weight = mean.new_zeros(n_classes, len(mean)).requires_grad_()  # (K, D)
    bias = mean.new_zeros(n_classes).requires_grad_()  # (K,)
    return LinearProbe(weight, bias, mean, scale)


def minimise(
    parameters: list[Tensor],
    logits: Callable[[], Iterator[Tensor]],
    targets: Tensor,
    *,
    penalty: Callable[[], Tensor],
    config: ProbeConfig,
    told: Told | None = None,
) -> None:
    """L-BFGS on the mean cross entropy of all rows, a stretch of them at a time, and the penalty."""
    optimizer = torch.optim.LBFGS(
        parameters,
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
        total = penalty()
        total.backward()  # type: ignore[no-untyped-call]
        at = 0
        for part in logits():
            wanted = targets[at : at + len(part)]
            at += len(part)
            loss = nn.functional.cross_entropy(part, wanted, reduction="sum") / len(targets)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total.detach() + loss.detach()
        evaluations += 1
        if told is not None:
            told(evaluations, float(total))
        return total

    optimizer.step(evaluate)  # type: ignore[no-untyped-call]


def moments(parts: Callable[[], Iterator[Tensor]], rows: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature; a constant one keeps its scale. (D,), (D,)"""
    mean = torch.stack([part.double().sum(dim=0) for part in parts()]).sum(dim=0) / rows
    squares = torch.stack([(part.double() - mean).square().sum(dim=0) for part in parts()]).sum(dim=0)
    scale = (squares / rows).sqrt()  # (D,)
    scale = torch.where(scale > 1e-6, scale, torch.ones_like(scale))
    return mean.float(), scale.float()


def float_parts(features: Features, device: torch.device) -> Iterator[Tensor]:
    """Stretches of rows in float32."""
    rows = max(ROWS // math.prod(features.shape[1:-1]), 1)  # of several layers, fewer at once
    for start in range(0, len(features), rows):
        part = features[start : start + rows]
        yield (part if isinstance(part, Tensor) else torch.from_numpy(np.array(part))).to(device).float()  # (n, ..., D)


def held_parts(features: Features, device: torch.device) -> Callable[[], Iterator[Tensor]]:
    """`float_parts` for many passes: converted once and held, unless they are large."""
    room = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else HELD_BYTES
    if 4 * math.prod(features.shape) > room:
        return lambda: float_parts(features, device)
    held = list(float_parts(features, device))
    return lambda: iter(held)


@dataclass(frozen=True, slots=True)
class MixedProbe:
    """A probe that reads several layers at once, and the share that each of them has."""

    weight: Tensor  # (K, D), on the standardised mix
    bias: Tensor  # (K,)
    shares: Tensor  # (L,)
    means: Tensor  # (L, D), of each layer
    products: Tensor  # (L, L, D), the layers' covariances feature by feature

    def logits(self, part: Tensor) -> Tensor:
        """Scores of the classes, from layers (n, L, D). (n, K)"""
        variance = torch.einsum("l,k,lkd->d", self.shares, self.shares, self.products)  # (D,), of the mix
        weight = self.weight / torch.where(variance > 1e-12, variance, 1.0).sqrt()
        mixed = torch.einsum("l,nld->nd", self.shares, part)
        return torch.addmm(self.bias - weight @ (self.shares @ self.means), mixed, weight.T)

    def predict(self, layers: Features) -> NDArray[np.int64]:
        """The class of each row of layers (N, L, D). (N,)"""
        found = [self.logits(part).argmax(dim=1).cpu().numpy() for part in float_parts(layers, self.weight.device)]
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def accuracy(self, layers: Features, labels: NDArray[np.int64]) -> float:
        return float((self.predict(layers) == labels).mean()) if len(labels) else 0.0


def fit_mixed_probe(
    layers: Features,
    labels: NDArray[np.int64],
    n_classes: int,
    *,
    config: ProbeConfig | None = None,
    told: Told | None = None,
) -> MixedProbe:
    """Train on layers (N, L, D) and classes (N,). The weights start from the average; the penalty leaves them alone."""
    config = config or ProbeConfig()
    check_labels(layers, labels, n_classes, axes=3)
    device = pick_device(config.device)
    parts = held_parts(layers, device)
    weights = torch.zeros(layers.shape[1], device=device, requires_grad=True)  # (L,)
    weight = torch.zeros(n_classes, layers.shape[2], device=device, requires_grad=True)  # (K, D)
    bias = torch.zeros(n_classes, device=device, requires_grad=True)  # (K,)
    probe = MixedProbe(weight, bias, torch.softmax(weights.detach(), dim=0), *_moments(parts, len(layers)))
    targets = torch.from_numpy(labels).to(device)

    def penalty() -> Tensor:
        return config.l2 * weight.square().sum()

    def evaluate() -> Iterator[Tensor]:
        for part in parts():  # the softmax is computed for each part: each has its own backward pass
            yield replace(probe, shares=torch.softmax(weights, dim=0)).logits(part)

    warm = replace(config, iterations=max(int(WARM_UP * config.iterations), 1))
    minimise([weight, bias], lambda: (probe.logits(p) for p in parts()), targets, penalty=penalty, config=warm)
    minimise([weights, weight, bias], evaluate, targets, penalty=penalty, config=config, told=told)
    shares = torch.softmax(weights.detach(), dim=0)
    return replace(probe, weight=weight.detach(), bias=bias.detach(), shares=shares)


def _moments(parts: Callable[[], Iterator[Tensor]], rows: int) -> tuple[Tensor, Tensor]:
    """Each layer's mean (L, D), and how the layers vary together, feature by feature (L, L, D)."""
    means = torch.stack([part.double().sum(dim=0) for part in parts()]).sum(dim=0) / rows  # (L, D)
    centred = (part - means.float() for part in parts())
    products = torch.stack([torch.einsum("nld,nkd->lkd", part, part).double() for part in centred]).sum(dim=0)
    return means.float(), (products / rows).float()
