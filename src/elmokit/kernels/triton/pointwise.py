"""The elementwise work of a training step on CUDA, each piece in one pass over memory; sums in float32.

Plain torch does the same where these kernels do not run, such as `elmokit.nn.char_cnn.Highway`.
"""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 512  # of a row that a program takes at a time
SUMMED = 64  # rows whose gradients a program of the highway adds up for the biases


@triton.jit
def highway_kernel(x, transform, gate, y, total, BLOCK: tl.constexpr):
    """y = g relu(transform) + (1 - g) x, g = sigmoid(gate); all of `total` numbers."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < total
    carried = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    t = tl.load(transform + at, mask=live, other=0.0).to(tl.float32)
    g = tl.sigmoid(tl.load(gate + at, mask=live, other=0.0).to(tl.float32))
    tl.store(y + at, (carried + g * (tl.maximum(t, 0.0) - carried)).to(y.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["n"])
def highway_backward_kernel(
    dy, x, transform, gate, dx, d_transform, d_gate, sums, n,
    F: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr, BF: tl.constexpr,
):  # fmt: skip
    """Gradients of what was carried and of both products, (n, F) each; sums of the latter over ROWS rows: (2, ., F)."""
    col = tl.program_id(1) * BF + tl.arange(0, BF)
    of_transform = tl.zeros((BF,), tl.float32)
    of_gate = tl.zeros((BF,), tl.float32)
    for start in range(0, ROWS, BM):
        row = tl.program_id(0) * ROWS + start + tl.arange(0, BM)
        live = (row < n)[:, None] & (col < F)[None, :]
        at = row.to(tl.int64)[:, None] * F + col[None, :]
        d = tl.load(dy + at, mask=live, other=0.0).to(tl.float32)
        carried = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
        t = tl.load(transform + at, mask=live, other=0.0).to(tl.float32)
        g = tl.sigmoid(tl.load(gate + at, mask=live, other=0.0).to(tl.float32))
        dt = tl.where(t > 0.0, d * g, 0.0)
        dg = d * (tl.maximum(t, 0.0) - carried) * g * (1.0 - g)
        tl.store(dx + at, (d * (1.0 - g)).to(dx.dtype.element_ty), mask=live)
        tl.store(d_transform + at, dt.to(d_transform.dtype.element_ty), mask=live)
        tl.store(d_gate + at, dg.to(d_gate.dtype.element_ty), mask=live)
        of_transform += tl.sum(dt, axis=0)
        of_gate += tl.sum(dg, axis=0)
    spot = tl.program_id(0) * F + col
    tl.store(sums + spot, of_transform, mask=col < F)
    tl.store(sums + tl.num_programs(0) * F + spot, of_gate, mask=col < F)


class FusedHighway(torch.autograd.Function):
    """x (n, F) through one highway layer; the four others are the weights and biases of transform and gate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_t: Tensor, b_t: Tensor, w_g: Tensor, b_g: Tensor) -> Tensor:
        x = x.contiguous()
        t, g = torch.nn.functional.linear(x, w_t, b_t), torch.nn.functional.linear(x, w_g, b_g)  # (n, F)
        y = torch.empty_like(x)
        highway_kernel[(triton.cdiv(x.numel(), 2048),)](x, t, g, y, x.numel(), BLOCK=2048, num_warps=4)
        ctx.save_for_backward(x, w_t, w_g, t, g)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        x, w_t, w_g, t, g = ctx.saved_tensors
        n, F = x.shape
        dx, dt, dg = torch.empty_like(x), torch.empty_like(t), torch.empty_like(g)
        parts = triton.cdiv(n, SUMMED)
        sums = torch.empty(2, parts, F, dtype=torch.float32, device=x.device)
        block = min(256, max(16, triton.next_power_of_2(F)))
        highway_backward_kernel[(parts, triton.cdiv(F, block))](
            dy.contiguous(), x, t, g, dx, dt, dg, sums, n, F=F, ROWS=SUMMED, BM=8, BF=block, num_warps=4
        )
        dx.addmm_(dt, w_t).addmm_(dg, w_g)
        db = sums.sum(dim=1).to(x.dtype)  # (2, F)
        return dx, dt.T @ x, db[0], dg.T @ x, db[1]


@triton.jit(do_not_specialize=["n"])
def add_rows_kernel(
    rows, index, scale, total, n, P: tl.constexpr, SCALED: tl.constexpr, BM: tl.constexpr, BP: tl.constexpr
):  # fmt: skip
    """total[index[i]] += rows[i] (times `scale`), for BM rows; `total` is float32."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, n - 1).to(tl.int64)
    place = tl.load(index + near)
    for start in range(0, P, BP):
        col = start + tl.arange(0, BP)
        both = (row < n)[:, None] & (col < P)[None, :]
        value = tl.load(rows + near[:, None] * P + col[None, :], mask=both, other=0.0).to(tl.float32)
        if SCALED:
            value *= tl.load(scale).to(tl.float32)
        tl.atomic_add(total + place[:, None] * P + col[None, :], value, mask=both, sem="relaxed")


def add_rows_(total: Tensor, index: Tensor, rows: Tensor, *, scale: Tensor | None = None) -> None:
    """total[index[i]] += scale * rows[i]; total (U, P) float32, index (n,), rows (n, P) of any float type."""
    n, P = rows.shape
    if n:
        block, columns = row_tile(P)
        add_rows_kernel[(triton.cdiv(n, block),)](
            rows.contiguous(), index, scale, total, n, P=P, SCALED=scale is not None, BM=block, BP=columns, num_warps=4
        )


@triton.jit(do_not_specialize=["limit"])  # lengths that 16 divides let it read 16 bytes at once
def outer_gradient_kernel(d_out, raw, dh, before, rest, limit, CLIP: tl.constexpr, BLOCK: tl.constexpr):
    """`before` zeros, then `rest` numbers of d_out, zero where the output was clipped."""
    r = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    given = (at >= before) & (at < before + rest)
    d = tl.load(d_out + r * rest + at - before, mask=given, other=0.0)
    if CLIP:
        h = tl.load(raw + r * rest + at - before, mask=given, other=0.0).to(tl.float32)
        d = tl.where(tl.abs(h) <= limit, d, 0.0)
    tl.store(dh + r * (before + rest) + at, d.to(dh.dtype.element_ty), mask=at < before + rest)


def outer_gradient(d_out: Tensor, raw: Tensor | None, rows: int, clip: float | None) -> Tensor:
    """d_out (R, N, P) as the recurrence's backward pass starts with it: (R, rows + N, P), zeros first.

    Where `raw` (R, N, P), the output before its clip, is beyond the clip, the gradient is zero.
    """
    R, N, P = d_out.shape
    dh = torch.empty(R, rows + N, P, dtype=d_out.dtype, device=d_out.device)
    outer_gradient_kernel[(triton.cdiv((rows + N) * P, 2048), R)](
        d_out.contiguous(), raw, dh, rows * P, N * P, clip or 0.0,
        CLIP=raw is not None and clip is not None, BLOCK=2048, num_warps=4,
    )  # fmt: skip
    return dh


def row_tile(P: int) -> tuple[int, int]:
    """Rows and columns of a tile of 2,048 numbers or so: 16 to a thread."""
    columns = min(COLUMNS, max(16, triton.next_power_of_2(P)))
    return max(1, 2048 // columns), columns
