"""Negatives for the sampled softmax, log-uniform over frequency ranks, and the corrections of their scores.

- `distinct` (default): exactly S different words by systematic sampling. Word w enters with probability pi_w. A
  negative's score is lowered by log pi_w, the target's own is not, so the expected partition sum is the full one
  (Horvitz and Thompson 1952), with less variance than drawing with replacement.
- `repeated`: S draws with replacement. A negative's score is lowered by the log of its expected count S * q_w; the
  target's own is not, once its accidental hits are dropped. The expected partition sum is the full one here too.
- `published`: drawn as `distinct`, but target and negatives are lowered by log pi_w, as in bilm-tf: the probability of
  the target given the drawn set. No estimate of the partition sum, but with the same optimum.

Do not correct the target by an *expected count*, which for frequent words is far above 1.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from elmokit.errors import ConfigError

Sampling = Literal["distinct", "repeated", "published"]


class Negatives(NamedTuple):
    """One draw, shared by all positions of a step."""

    ids: Tensor  # (S,)
    shift: Tensor  # (S,) what is added to a negative's score
    target_shift: Tensor | None  # (V,) what is added to the target's own score


class LogUniformSampler:
    """Draws S of V words. Tables live on `device`, so a draw needs no host and can be part of a CUDA graph."""

    def __init__(
        self, vocabulary: int, samples: int, *, sampling: Sampling = "distinct", device: torch.device | str = "cpu"
    ) -> None:
        if not 0 < samples < vocabulary:
            raise ConfigError(
                f"{samples} negatives cannot be drawn from {vocabulary} words; use the full softmax instead"
            )
        if sampling not in ("distinct", "repeated", "published"):
            raise ConfigError(f"sampling {sampling!r} is not known; expected distinct, repeated or published")
        self.samples, self.sampling, self.vocabulary = samples, sampling, vocabulary
        rank = torch.arange(vocabulary, dtype=torch.float64)
        q = torch.log1p(1 / (rank + 1)) / torch.log(torch.tensor(vocabulary + 1.0, dtype=torch.float64))  # (V,)
        if sampling == "repeated":
            self.shift = -(samples * q).log().float().to(device)  # (V,)
            self.cumulative = q.cumsum(0).float().to(device)
            return
        pi = _inclusion(q, samples)  # (V,) sums to S
        self.shift = -pi.log().float().to(device)
        # Systematic sampling takes every word over whose span of the cumulative sum a comb with unit teeth passes.
        # Neighbours on the comb exclude each other, so the words are laid out in a fixed random order, not by rank.
        order = torch.randperm(vocabulary, generator=torch.Generator().manual_seed(0))
        self.order = order.to(device)
        self.cumulative = pi[order].cumsum(0).to(device)  # float64: a rounding error here would drop or repeat words

    def noise(self) -> tuple[int, ...]:
        """The shape of the uniform numbers that one draw takes."""
        return (self.samples,) if self.sampling == "repeated" else (1,)

    def draw(self, uniform: Tensor) -> Negatives:
        """The negatives belonging to uniform numbers in [0, 1) of shape `noise()`."""
        if self.sampling == "repeated":
            ids = torch.searchsorted(self.cumulative, uniform, right=True).clamp_(max=self.vocabulary - 1)
            return Negatives(ids, self.shift[ids], None)
        comb = torch.arange(self.samples, dtype=torch.float64, device=uniform.device) + uniform.double()
        ids = self.order[torch.searchsorted(self.cumulative, comb, right=True).clamp_(max=self.vocabulary - 1)]
        return Negatives(ids, self.shift[ids], self.shift if self.sampling == "published" else None)


def _inclusion(q: Tensor, samples: int) -> Tensor:
    """pi = 1 - (1 - q)^n, n such that they sum to `samples`: what drawing until S different words came comes to."""
    low, high = float(samples), float(samples)
    while -torch.expm1(high * torch.log1p(-q)).sum() < samples:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if -torch.expm1(middle * torch.log1p(-q)).sum() < samples:
            low = middle
        else:
            high = middle
    pi = -torch.expm1(high * torch.log1p(-q))
    return pi * (
        samples / pi.sum()
    )  # exact to rounding; still at most 1, since pi is below 1 and the factor rounds to 1
