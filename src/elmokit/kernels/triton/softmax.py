"""softmax_rows_ as one Triton program per row: read once, reduce in registers, write once."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _rows(scores, stride, shift, ids, targets, own, log_sums, S, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < S
    target = tl.load(targets + row)
    mine = tl.load(own + row).to(tl.float32)
    x = tl.load(scores + row * stride + column, mask=inside, other=float("-inf")).to(tl.float32)
    x += tl.load(shift + column, mask=inside, other=0.0)
    hit = tl.load(ids + column, mask=inside, other=-1) == target
    x = tl.where(hit, float("-inf"), x)
    top = tl.maximum(tl.max(x, 0), mine)
    e = tl.exp(x - top)
    total = tl.sum(e, 0) + tl.exp(mine - top)
    tl.store(log_sums + row, top + tl.log(total))
    tl.store(scores + row * stride + column, (e / total).to(scores.dtype.element_ty), mask=inside)


def triton_softmax_rows_(scores: Tensor, shift: Tensor, ids: Tensor, targets: Tensor, own: Tensor) -> Tensor:
    n, S = scores.shape
    log_sums = torch.empty(n, dtype=torch.float32, device=scores.device)
    warps = 8 if S <= 8192 else 16
    _rows[(n,)](
        scores, scores.stride(0), shift, ids, targets, own, log_sums, S, triton.next_power_of_2(S), num_warps=warps
    )
    return log_sums
