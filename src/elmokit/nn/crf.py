"""A linear-chain conditional random field: the likelihood of a label sequence, and the best one.

The score of a path y over n positions is start[y_1] + sum_t emission[t, y_t] + sum_t step[y_t-1, y_t] + end[y_n].
Forbidden starts, steps and ends take no part in it: neither in the likelihood's normaliser nor in decoding.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.errors import ConfigError

# Finite, since the gradient of a sum of exponentials over nothing but -inf is NaN; far enough down to be 0 in float32.
FORBIDDEN = -10_000.0


@dataclass(frozen=True, slots=True, eq=False)
class Allowed:
    """Which labels may begin a sequence, follow each other, and end it."""

    start: Tensor  # (K,) bool
    step: Tensor  # (K, K) bool, from row to column
    end: Tensor  # (K,) bool

    @classmethod
    def everything(cls, n_labels: int) -> "Allowed":
        free = torch.ones(n_labels, dtype=torch.bool)
        return cls(free, torch.ones(n_labels, n_labels, dtype=torch.bool), free.clone())


class Crf(nn.Module):
    """Scores for starts, steps and ends over K labels. Masks are True at the real positions, which come first."""

    start_allowed: Tensor
    step_allowed: Tensor
    end_allowed: Tensor

    def __init__(self, n_labels: int, *, allowed: Allowed | None = None) -> None:
        super().__init__()
        allowed = allowed or Allowed.everything(n_labels)
        shapes = (tuple(allowed.start.shape), tuple(allowed.step.shape), tuple(allowed.end.shape))
        if shapes != ((n_labels,), (n_labels, n_labels), (n_labels,)):
            raise ConfigError(f"what is allowed has shapes {shapes}, expected those of {n_labels} labels")
        self.n_labels = n_labels
        self.start = nn.Parameter(torch.zeros(n_labels))
        self.step = nn.Parameter(torch.zeros(n_labels, n_labels))
        self.end = nn.Parameter(torch.zeros(n_labels))
        self.register_buffer("start_allowed", allowed.start, persistent=False)
        self.register_buffer("step_allowed", allowed.step, persistent=False)
        self.register_buffer("end_allowed", allowed.end, persistent=False)

    def log_likelihood(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """log p(labels | emissions) of each sequence; -inf for one that is not allowed, 0 for an empty one. (B,)"""
        if not emissions.shape[1]:
            return emissions.sum(dim=(1, 2))  # (B,) zeros
        found = self.path_score(emissions, labels, mask) - self.log_normaliser(emissions, mask)  # (B,)
        return found.masked_fill(~self.possible(labels, mask), -torch.inf)

    def possible(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Whether each label sequence is allowed. (B,) bool"""
        lengths = mask.sum(dim=1)  # (B,)
        last = labels.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]  # (B,)
        steps = self.step_allowed[labels[:, :-1], labels[:, 1:]] | ~mask[:, 1:]  # (B, T - 1)
        ends = self.start_allowed[labels[:, 0]] & self.end_allowed[last]  # (B,)
        return (ends & steps.all(dim=1)) | (lengths == 0)

    def path_score(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The score of the given path; forbidden parts count as trained, not as forbidden. (B,)"""
        real = mask.to(emissions.dtype)  # (B, T)
        lengths = mask.sum(dim=1)  # (B,)
        last = labels.gather(1, (lengths - 1).clamp(min=0)[:, None])[:, 0]  # (B,)
        emitted = emissions.gather(2, labels[..., None])[..., 0] * real  # (B, T)
        stepped = self.step[labels[:, :-1], labels[:, 1:]] * real[:, 1:]  # (B, T - 1)
        ends = (self.start[labels[:, 0]] + self.end[last]) * real[:, 0]  # (B,)
        return emitted.sum(dim=1) + stepped.sum(dim=1) + ends

    def log_normaliser(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """The log of the sum over all allowed paths. (B,)"""
        total: Tensor = _LogNormaliser.apply(emissions, mask, *self._scores())  # type: ignore[no-untyped-call]
        return total * mask[:, 0]

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The best allowed path of each sequence, 0 after its end, and its score. (B, T), (B,)"""
        B, T, _ = emissions.shape
        if not T:
            return torch.zeros(B, 0, dtype=torch.long, device=emissions.device), emissions.sum(dim=(1, 2))
        start, step, end = self._scores()
        best = start + emissions[:, 0]  # (B, K): the score of the best path that ends in each label
        came_from: list[Tensor] = []
        stay = torch.arange(self.n_labels, device=emissions.device).expand(B, -1)  # (B, K)
        for t in range(1, T):
            longer, previous = (best[:, :, None] + step).max(dim=1)  # (B, K), (B, K)
            best = torch.where(mask[:, t, None], longer + emissions[:, t], best)
            came_from.append(torch.where(mask[:, t, None], previous, stay))
        score, label = (best + end).max(dim=1)  # (B,), (B,)
        path = [label]
        for previous in reversed(came_from):  # after the end, `stay` leads back to the last real position
            label = previous.gather(1, label[:, None])[:, 0]
            path.append(label)
        return torch.stack(path[::-1], dim=1) * mask, score * mask[:, 0]

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.start.masked_fill(~self.start_allowed, FORBIDDEN),
            self.step.masked_fill(~self.step_allowed, FORBIDDEN),
            self.end.masked_fill(~self.end_allowed, FORBIDDEN),
        )


class _LogNormaliser(torch.autograd.Function):
    """The forward and the backward algorithm in one sweep, both at once; the gradients are the marginals they give.

    alpha[t, k] is the log sum over all beginnings of paths up to label k at t, beta[t, k] over all their endings from
    label k at t on; both hold the emission at t.
    """

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, mask: Tensor, start: Tensor, step: Tensor, end: Tensor) -> Tensor:
        B, T, K = emissions.shape
        both = torch.stack([step, step.T])[:, None]  # (2, 1, K, K): alpha goes from row to column, beta back
        emitted = torch.stack([emissions, emissions.flip(1)]).unbind(2)  # T of (2, B, K)
        ending = (emissions + end).unbind(1)  # T of (B, K)
        goes_on = mask[..., None].unbind(1)  # T of (B, 1)
        shares = emissions.new_empty(max(T - 1, 0), 2, B, K, K)
        alphas, betas = [start + emissions[:, 0]], [ending[-1]]
        for t in range(1, T):
            scores = torch.stack([alphas[-1], betas[-1]])[..., None] + both  # (2, B, K, K)
            most = scores.amax(dim=2, keepdim=True)  # (2, B, 1, K)
            torch.sub(scores, most, out=shares[t - 1]).exp_()
            longer = shares[t - 1].sum(dim=2).log_().add_(most[:, :, 0]).add_(emitted[t])  # (2, B, K)
            alphas.append(torch.where(goes_on[t], longer[0], alphas[-1]))
            betas.append(torch.where(goes_on[T - t], longer[1], ending[T - 1 - t]))
        alpha, beta = torch.stack(alphas, dim=1), torch.stack(betas[::-1], dim=1)  # (B, T, K) each
        total = torch.logsumexp(alphas[-1] + end, dim=1)  # (B,)
        ctx.save_for_backward(emissions, mask, end, alpha, beta, shares[:, 0], total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        emissions, mask, end, alpha, beta, shares, total = ctx.saved_tensors
        real = mask * grads[0][:, None]  # (B, T)
        labels = (alpha + beta - emissions - total[:, None, None]).exp() * real[..., None]  # (B, T, K)
        into = labels[:, 1:].transpose(0, 1) / shares.sum(dim=2)  # (T - 1, B, K): shared out among the labels before
        steps = (shares * into[:, :, None]).sum(dim=(0, 1))  # (K, K)
        last = (alpha[:, -1] + end - total[:, None]).exp() * real[:, :1]  # (B, K)
        return labels, None, labels[:, 0].sum(dim=0), steps, last.sum(dim=0)
