"""The sampled softmax's loss and gradients on CUDA: everything but its three matrix products in four kernels.

`elmokit.nn.softmax` has the same in plain torch. Products are in the type of the hidden vectors, sums in float32. What
a position adds to its own target goes to the weights in the backward pass, multiplied by the loss's gradient already.
"""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.kernels.triton.pointwise import add_rows_, row_tile

SCORES_AT_ONCE = 2**27  # per chunk: 256 MB in bfloat16. Long products fill a GPU better than its cache helps


@triton.jit(do_not_specialize=["n"])
def own_scores_kernel(
    hidden, weight, bias, targets, target_shift, own, n,
    P: tl.constexpr, SHIFTED: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """own[i] = hidden[i] . weight[target] + bias[target] (+ target_shift[target]), for BM positions."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, n - 1).to(tl.int64)
    target = tl.load(targets + near)  # (BM,)
    total = tl.zeros((BM, BP), tl.float32)
    for start in range(0, P, BP):
        col = start + tl.arange(0, BP)
        inside = (col < P)[None, :]
        h = tl.load(hidden + near[:, None] * P + col[None, :], mask=inside, other=0.0)
        w = tl.load(weight + target[:, None] * P + col[None, :], mask=inside, other=0.0).to(h.dtype)
        total += h.to(tl.float32) * w.to(tl.float32)
    score = tl.sum(total, axis=1) + tl.load(bias + target)
    if SHIFTED:
        score += tl.load(target_shift + target)
    tl.store(own + row, score, mask=row < n)


@triton.jit(do_not_specialize=["n"])
def softmax_rows_kernel(
    scores, shift, ids, targets, own, log_sums, sums, n, S: tl.constexpr, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr
):  # fmt: skip
    """Every PROGRAMS-th row of `scores` (n, S): as `elmokit.kernels.softmax_rows_`, in powers of two.

    A program adds the probabilities of its rows, column by column, to its own row of `sums` (PROGRAMS, S).
    """
    column = tl.arange(0, BLOCK)
    inside = column < S
    first = tl.program_id(0)
    ahead = tl.load(scores + first.to(tl.int64) * S + column, mask=inside & (first < n), other=0.0)
    total = tl.load(sums + first * S + column, mask=inside, other=0.0)
    for row in range(first, n, PROGRAMS):
        x = ahead.to(tl.float32)
        after = tl.cast(row + PROGRAMS, tl.int64)  # fetched while this row is worked on
        ahead = tl.load(scores + after * S + column, mask=inside & (after < n), other=0.0)
        x = x * 1.4426950408889634 + tl.load(shift + column, mask=inside, other=float("-inf"))
        hit = tl.load(ids + column, mask=inside, other=-1) == tl.load(targets + row).to(tl.int32)
        x = tl.where(hit, float("-inf"), x)
        mine = tl.load(own + row) * 1.4426950408889634
        top = tl.maximum(tl.max(x, 0), mine)
        e = tl.exp2(x - top)
        whole = tl.sum(e, 0) + tl.exp2(mine - top)
        e *= 1.0 / whole
        total += e
        tl.store(log_sums + row, (top + tl.log2(whole)) * 0.6931471805599453)
        tl.store(scores + tl.cast(row, tl.int64) * S + column, e.to(scores.dtype.element_ty), mask=inside)
    tl.store(sums + first * S + column, total, mask=inside)


@triton.jit(do_not_specialize=["n"])
def targets_backward_kernel(
    hidden, weight, targets, own, log_sums, grad, d_raw, d_hidden, d_weight, d_bias, n,
    P: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """The targets' part: d_hidden = grad (d_raw + (p - 1) weight[target]); (p - 1) grad hidden to d_weight[target]."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, n - 1).to(tl.int64)
    live = row < n
    scale = tl.load(grad).to(tl.float32)
    target = tl.load(targets + near)
    d = (tl.exp(tl.load(own + near) - tl.load(log_sums + near)) - 1.0) * scale  # (BM,)
    tl.atomic_add(d_bias + target, d, mask=live, sem="relaxed")
    for start in range(0, P, BP):
        col = start + tl.arange(0, BP)
        both = live[:, None] & (col < P)[None, :]
        at = near[:, None] * P + col[None, :]
        theirs = target[:, None] * P + col[None, :]
        h = tl.load(hidden + at, mask=both, other=0.0)
        w = tl.load(weight + theirs, mask=both, other=0.0).to(h.dtype).to(tl.float32)
        raw = tl.load(d_raw + at, mask=both, other=0.0).to(tl.float32)
        tl.store(d_hidden + at, (raw * scale + d[:, None] * w).to(h.dtype), mask=both)
        tl.atomic_add(d_weight + theirs, d[:, None] * h.to(tl.float32), mask=both, sem="relaxed")


class SampledLoss(torch.autograd.Function):
    """Summed cross entropy of each target among itself and the step's negatives."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        ids: Tensor,
        shift: Tensor,
        target_shift: Tensor | None,
    ) -> Tensor:
        (n, P), S = hidden.shape, len(ids)
        hidden, weight = hidden.contiguous(), weight.contiguous()
        device = hidden.device
        w = weight[ids].to(hidden.dtype)  # (S, P)
        shifts = (bias[ids] + shift) * 1.4426950408889634  # (S,) for powers of two
        small = ids.int()
        own, log_sums = (torch.empty(n, dtype=torch.float32, device=device) for _ in range(2))
        block, columns = row_tile(P)
        own_scores_kernel[(triton.cdiv(n, block),)](
            hidden, weight, bias, targets, target_shift, own, n,
            P=P, SHIFTED=target_shift is not None, BM=block, BP=columns, num_warps=4,
        )  # fmt: skip
        programs = _programs(device)
        sums = torch.zeros(programs, S, dtype=torch.float32, device=device)
        d_raw = torch.empty_like(hidden)
        d_w: Tensor | None = None
        rows = _rows(n, S)
        for at in range(0, n, rows):
            h = hidden[at : at + rows]
            scores = h @ w.T  # (rows, S)
            softmax_rows_kernel[(programs,)](
                scores, shifts, small, targets[at:], own[at:], log_sums[at:], sums, len(h),
                S=S, BLOCK=max(16, triton.next_power_of_2(S)), PROGRAMS=programs,
                num_warps=4 if S <= 1024 else 16 if S <= 8192 else 32,
            )  # fmt: skip
            torch.mm(scores, w, out=d_raw[at : at + rows])
            part = _exact_product(scores.T, h)  # (S, P)
            d_w = part if d_w is None else d_w.add_(part)
        ctx.save_for_backward(hidden, weight, targets, ids, own, log_sums, d_raw, d_w, sums)
        return (log_sums - own).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, ids, own, log_sums, d_raw, d_w, sums = ctx.saved_tensors
        n, P = hidden.shape
        d_hidden, d_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        d_bias = torch.zeros(len(weight), dtype=torch.float32, device=weight.device)
        block, columns = row_tile(P)
        targets_backward_kernel[(triton.cdiv(n, block),)](
            hidden, weight, targets, own, log_sums, grad, d_raw, d_hidden, d_weight, d_bias, n,
            P=P, BM=block, BP=columns, num_warps=4,
        )  # fmt: skip
        add_rows_(d_weight, ids, d_w, scale=grad)
        d_bias.index_add_(0, ids, sums.sum(dim=0) * grad)
        return d_hidden, d_weight, d_bias, None, None, None, None


def _rows(n: int, S: int) -> int:
    """Positions per chunk: equal chunks, whole tiles of a product."""
    chunks = -(-n * S // SCORES_AT_ONCE)
    return -(-n // (chunks * 128)) * 128


def _exact_product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, without a rounding on the way."""
    if a.is_cuda and a.dtype != torch.float32:
        return torch.bmm(a[None], b[None], out_dtype=torch.float32)[0]
    return (a @ b).float()


@cache
def _programs(device: torch.device) -> int:
    """Two for each multiprocessor, so that one works while the other waits for memory."""
    return 2 * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 3
