"""A linear probe on a learned mix: the softmax weights of the layers are trained together with the classifier.

The mix is standardised as a single layer is for its probe, whatever the weights: otherwise the layer with the longest
vectors would win, since it escapes the penalty. So with all weight on one layer this is that layer's probe. Gamma is
left out: standardising undoes it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.analysis.probe import Features, ProbeConfig, Told, check_labels, float_parts, held_parts, minimise
from elmokit.encoders.places import pick_device

WARM_UP = 0.2  # of the iterations go to the classifier alone, on the average, before the weights move


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
