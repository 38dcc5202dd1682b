"""The language model's output layer, shared by both directions: sampled, full or adaptive softmax over the vocabulary.

Neither the full nor the sampled loss ever holds tokens x vocabulary: positions go through in chunks, and each chunk's
gradients are computed with its loss and its scores then forgotten.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.kernels import ROW_LIMIT, fused_step, softmax_rows_
from elmokit.nn.sampling import Negatives, Sampling

SCORES_AT_ONCE = 2**25  # per chunk: 64 MB in bfloat16, about an H200's cache


@dataclass(frozen=True, slots=True)
class SoftmaxConfig:
    """How the next word is scored in training. Evaluation always uses every word."""

    kind: Literal["sampled", "full", "adaptive"] = "sampled"
    samples: int = 8192  # sampled: negatives per step
    sampling: Sampling = "distinct"
    cutoffs: tuple[int, ...] = (4000, 20000)  # adaptive: where the clusters of rarer words begin

    def __post_init__(self) -> None:
        if self.kind not in ("sampled", "full", "adaptive"):
            raise ConfigError(f"softmax {self.kind!r} is not known; expected sampled, full or adaptive")


class Softmax(nn.Module):
    """One row per word: full and sampled softmax share these weights."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))  # (V, P)
        self.bias = nn.Parameter(torch.zeros(vocabulary))  # (V,)

    def loss(
        self, hidden: Tensor, targets: Tensor, negatives: Negatives | None = None, *, weight: Tensor | None = None
    ) -> Tensor:
        """Mean negative log probability, in nats, of targets (N,) after hidden (N, P); over `negatives` where given.

        `weight` stands for the own one, such as its rounded form.
        """
        rows = self.weight if weight is None else weight
        if negatives is None:
            total = _Full.apply(hidden, rows, self.bias, targets)  # type: ignore[no-untyped-call]
        elif len(negatives.ids) <= ROW_LIMIT and rows.dtype == torch.float32 and fused_step(hidden):
            from elmokit.kernels.triton.sampled import SampledLoss

            total = SampledLoss.apply(hidden, rows, self.bias, targets, *negatives)  # type: ignore[no-untyped-call]
        else:
            total = _Sampled.apply(hidden, rows, self.bias, targets, negatives)  # type: ignore[no-untyped-call]
        mean: Tensor = total / len(targets)
        return mean

    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, P) to (N, V), float32. For few positions at a time; see `nll` for many."""
        return torch.log_softmax((hidden @ self.weight.T.to(hidden.dtype)).float() + self.bias.float(), dim=1)

    @torch.no_grad()
    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log probability of each target, over all words. (N,)"""
        weight = self.weight.to(hidden.dtype)
        parts = []
        for h, t in _chunks(hidden, targets, len(weight)):
            scores = (h @ weight.T).float() + self.bias.float()  # (n, V)
            parts.append(torch.logsumexp(scores, dim=1) - scores.gather(1, t[:, None])[:, 0])
        return torch.cat(parts) if parts else hidden.new_zeros(0)


class AdaptiveSoftmax(nn.Module):
    """Frequent words in full, rarer ones in clusters of smaller width (Grave et al. 2017), through torch's own."""

    def __init__(self, vocabulary: int, width: int, *, cutoffs: tuple[int, ...]) -> None:
        super().__init__()
        self.cutoffs = tuple(c for c in cutoffs if c < vocabulary) or (vocabulary // 2,)
        narrower = next(d for d in (4, 3, 2, 1) if d ** len(self.cutoffs) <= width)  # no cluster gets a width of 0
        self.inner = nn.AdaptiveLogSoftmaxWithLoss(
            width, vocabulary, list(self.cutoffs), div_value=float(narrower), head_bias=True
        )

    def loss(self, hidden: Tensor, targets: Tensor, negatives: Negatives | None = None) -> Tensor:
        result: Tensor = -self.inner(hidden.float(), targets).output.mean()
        return result

    def log_probs(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.inner.log_prob(hidden.float())
        return result

    @torch.no_grad()
    def nll(self, hidden: Tensor, targets: Tensor) -> Tensor:
        result: Tensor = -self.inner(hidden.float(), targets).output
        return result


def build_softmax(config: SoftmaxConfig, vocabulary: int, width: int) -> Softmax | AdaptiveSoftmax:
    if config.kind == "adaptive":
        return AdaptiveSoftmax(vocabulary, width, cutoffs=config.cutoffs)
    return Softmax(vocabulary, width)


def _chunks(hidden: Tensor, targets: Tensor, columns: int) -> list[tuple[Tensor, Tensor]]:
    rows = max(1, SCORES_AT_ONCE // columns)
    return list(zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True))


class _Full(torch.autograd.Function):
    """Summed cross entropy over all words; gradients are made chunk by chunk on the way forward."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        w = weight.to(hidden.dtype)  # (V, P)
        d_hidden = torch.empty_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        total = hidden.new_zeros((), dtype=exact)
        at = 0
        for h, t in _chunks(hidden, targets, len(w)):
            scores = (h @ w.T).to(exact) + bias.to(exact)  # (n, V)
            log_sum = torch.logsumexp(scores, dim=1)  # (n,)
            total = total + (log_sum - scores.gather(1, t[:, None])[:, 0]).sum()
            scores = scores.sub_(log_sum[:, None]).exp_()
            scores.scatter_add_(1, t[:, None], scores.new_full((len(t), 1), -1.0))  # p - onehot
            d_bias += scores.sum(dim=0)
            d = scores.to(hidden.dtype)
            d_hidden[at : at + len(h)] = d @ w
            d_weight += (d.T @ h).to(weight.dtype)
            at += len(h)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad, d_bias * grad, None


class _Sampled(torch.autograd.Function):
    """Summed cross entropy of each target among itself and the step's negatives."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, negatives: Negatives
    ) -> Tensor:
        ids, shift, target_shift = negatives
        exact = torch.promote_types(hidden.dtype, torch.float32)
        w = weight[ids].to(hidden.dtype)  # (S, P)
        shifts = (bias[ids] + shift).to(exact)  # (S,)
        own_bias = (bias if target_shift is None else bias + target_shift)[targets].to(exact)  # (N,)
        d_hidden = torch.empty_like(hidden)
        d_weight, d_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        d_w = torch.zeros(w.shape, dtype=weight.dtype, device=w.device)  # (S, P)
        d_b = torch.zeros_like(shifts)
        total = hidden.new_zeros((), dtype=exact)
        at = 0
        for h, t in _chunks(hidden, targets, len(ids)):
            end = at + len(h)
            w_t = weight[t].to(hidden.dtype)  # (n, P)
            own = (h.to(exact) * w_t.to(exact)).sum(dim=1) + own_bias[at:end]  # (n,)
            scores = h @ w.T  # (n, S)
            log_sum = softmax_rows_(scores, shifts, ids, t, own)  # scores are probabilities from here on
            total = total + (log_sum - own).sum()
            d_own = (own - log_sum).exp() - 1  # (n,)
            d_hidden[at:end] = scores @ w + d_own[:, None].to(h.dtype) * w_t
            d_w += (scores.T @ h).to(d_w.dtype)
            d_b += scores.sum(dim=0, dtype=exact)
            d_weight.index_add_(0, t, (d_own[:, None] * h).to(weight.dtype))
            d_bias.index_add_(0, t, d_own.to(bias.dtype))
            at = end
        d_weight.index_add_(0, ids, d_w)
        d_bias.index_add_(0, ids, d_b.to(bias.dtype))
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad, d_bias * grad, None, None
