"""The recurrence on CUDA: fused Triton kernels, all directions in one launch, differentiable.

Fulfils `elmokit.kernels.reference.Recurrence` for float32, bfloat16 and float16 inputs. Weights may be of any float
type (float32 master weights need no copy of their own); the cell, its gradient and all sums are float32. Nothing here
looks at data on the host, so a call can be captured in a CUDA graph.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from elmokit.kernels import step_wanted
from elmokit.kernels.reference import LstmRules, LstmState, LstmWeights
from elmokit.kernels.triton._lstm_backward import cell_backward_kernel, feed_backward_kernel, spread_kernel
from elmokit.kernels.triton._lstm_forward import carry_kernel, gates_kernel, project_kernel
from elmokit.kernels.triton._lstm_plan import (
    Plan,
    cell_backward_tile,
    choose_plan,
    gates_tile,
    pack_weights,
    product_tile,
)
from elmokit.kernels.triton.pointwise import outer_gradient

STRETCH = 8192  # packed positions whose hoisted input products are held at once
POINTWISE = 256  # columns that a pointwise kernel takes at a time


def triton_lstm(
    x: Tensor,
    weights: LstmWeights,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    *,
    keep: Tensor | None = None,
    plan: Plan | None = None,
) -> tuple[Tensor, LstmState]:
    if plan is None:
        plan = choose_plan(steps, state.c.shape[2], x.dtype)
    given = (x, weights.x, weights.h, weights.bias, weights.projection, state.h, state.c)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given):
        out, h, c = _Recurrence.apply(*given, keep, steps, rules, plan)  # type: ignore[no-untyped-call]
    else:
        out, h, c, _ = _forward(x, weights, state, steps, rules, keep, plan, save=False)
    return out, LstmState(h, c)


@dataclass(frozen=True, slots=True)
class _Tape:
    """What the backward pass needs of the forward one."""

    feed: Tensor  # (R, N, K) [x ; previous output] or the previous output alone
    gates: Tensor  # (R, N, 4H) after their nonlinearities, f negative where the cell was clipped
    cell: Tensor  # (R, B + N, H) float32, the initial cell first
    u: Tensor  # (R, N, H) what is projected
    raw: Tensor | None  # (R, N, P) the projection before its clip


def _forward(
    x: Tensor,
    weights: LstmWeights,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    keep: Tensor | None,
    plan: Plan,
    *,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, _Tape | None]:
    R, N, D = x.shape
    B, H, P = state.c.shape[1], state.c.shape[2], state.h.shape[2]
    dtype, device = x.dtype, x.device
    starts = (0, *accumulate(steps))
    K = P if plan.hoist else D + P
    # One row per position where the past is needed again; otherwise one row per sentence, overwritten by every step.
    per_step, rows_feed = save, N if save or not plan.hoist else B
    feed = torch.empty(R, rows_feed, K, dtype=dtype, device=device)  # (R, N or B, K)
    cell = torch.empty(R, B + N if save else B, H, dtype=torch.float32, device=device)  # (R, B + N or B, H)
    u = torch.empty(R, N if save else B, H, dtype=dtype, device=device)  # (R, N or B, H)
    gates = torch.empty(R, N, 4 * H, dtype=dtype, device=device) if save else None
    out = torch.empty(R, N, P, dtype=dtype, device=device)
    project_clip = rules.proj_clip if weights.projection is not None else None
    raw = torch.empty_like(out) if save and project_clip is not None else None
    if not plan.hoist:
        feed[..., :D].copy_(x)
    first = feed[:, : steps[0], K - P :]  # (R, rows, P)
    first.copy_(state.h[:, : steps[0]])
    if keep is not None:
        keep = keep.contiguous()
        first.mul_(keep[:, : steps[0], None])
    cell[:, :B].copy_(state.c)
    gate_weight = pack_weights(weights, dtype, weave=plan.weave, fold=not plan.hoist)  # (R, 4H, K)
    projection = None if weights.projection is None else weights.projection.to(dtype).contiguous()  # (R, P, H)
    bias = weights.bias.contiguous()
    ready, ready_from, ready_to = None, 0, 0
    partial = _parts(plan.project_split, R, B, P, device)
    exact = "ieee" if dtype == torch.float32 else "tf32"
    fast = _fast(dtype)

    for t, rows in enumerate(steps):
        at, more = starts[t], steps[t + 1] if t + 1 < len(steps) else 0
        if plan.hoist and at == ready_to:
            ready_from = at
            ready_to = max(end for end in starts[t + 1 :] if end - at <= STRETCH or end == at + rows)
            w_x = weights.x.to(dtype).transpose(1, 2)
            ready = torch.baddbmm(bias.to(dtype).unsqueeze(1), x[:, ready_from:ready_to], w_x)  # (R, n, 4H)
        before = 0 if t == 0 or not save else B + starts[t - 1]
        tile = plan.gates or gates_tile(rows, dtype)
        tma = plan.tma and plan.weave and dtype != torch.float32 and H % tile.cols == 0 and K % tile.depth == 0
        gates_kernel[(triton.cdiv(rows, tile.rows) * triton.cdiv(H, tile.cols), R)](
            _tiles(feed, tile.rows, tile.depth) if tma else feed,
            _tiles(gate_weight, 4 * tile.cols, tile.depth) if tma else gate_weight, bias, ready, keep, cell, gates, u,
            rows, at, at if rows_feed == N else 0, at - ready_from, before, B + at if save else 0, at if save else 0,
            N, rows_feed, ready_to - ready_from, cell.shape[1], u.shape[1],
            rules.forget_bias, rules.cell_clip or 0.0,
            H=H, K=K, HOIST=plan.hoist, WOVEN=plan.weave, TMA=tma, KEEP=keep is not None,
            CLIP=rules.cell_clip is not None, SAVE=save, FAST=fast, PRECISION=exact,
            BM=tile.rows, BU=tile.cols, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        next_at = starts[t + 1]
        at_feed = next_at if rows_feed == N else 0
        same = {"P": P, "K": K, "KEEP": keep is not None, "CLIP": project_clip is not None, "SAVE": save}
        where = (rows, at, next_at, more, at_feed, N, rows_feed)
        if projection is not None and not plan.library_project:
            tile = plan.project or product_tile(rows, P, R, dtype)
            grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(P, tile.cols), R, plan.project_split)
            project_kernel[grid](
                u, projection, out, raw, keep, feed, partial,
                rows, at, at if per_step else 0, next_at, more, at_feed, N, u.shape[1], rows_feed, B,
                project_clip or 0.0, H=H, SPLIT=plan.project_split, PRECISION=exact, **same,
                BM=tile.rows, BN=tile.cols, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
            )  # fmt: skip
            if plan.project_split > 1:
                carry_kernel[(triton.cdiv(rows, 4), R)](
                    partial, out, raw, keep, feed, *where, 0, B, project_clip or 0.0,
                    SPLIT=plan.project_split, **same, BM=4, BN=POINTWISE,
                )  # fmt: skip
        else:
            at_u = at if per_step else 0
            product = u if projection is None else torch.bmm(u[:, at_u : at_u + rows], projection.transpose(1, 2))
            carry_kernel[(triton.cdiv(rows, 4), R)](
                product, out, raw, keep, feed, *where, at_u if projection is None else 0, product.shape[1],
                project_clip or 0.0, SPLIT=1, **same, BM=4, BN=POINTWISE,
            )  # fmt: skip

    h = _last(out, state.h, steps, starts, 0)
    c = _last(cell, state.c, steps, starts, B) if save else cell.to(state.c.dtype)
    tape = _Tape(feed, gates, cell, u, raw) if gates is not None else None
    return out, h, c, tape


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w_x: Tensor,
        w_h: Tensor,
        bias: Tensor,
        projection: Tensor | None,
        h: Tensor,
        c: Tensor,
        keep: Tensor | None,
        steps: tuple[int, ...],
        rules: LstmRules,
        plan: Plan,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weights = LstmWeights(w_x, w_h, bias, projection)
        out, h_last, c_last, tape = _forward(x, weights, LstmState(h, c), steps, rules, keep, plan, save=True)
        assert tape is not None
        ctx.save_for_backward(x, w_x, w_h, projection, h, keep, tape.feed, tape.gates, tape.cell, tape.u, tape.raw)
        ctx.steps, ctx.rules, ctx.plan = steps, rules, plan
        ctx.types = (bias.dtype, c.dtype)
        ctx.set_materialize_grads(False)
        return out, h_last, c_last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor | None, d_h: Tensor | None, d_c: Tensor | None) -> tuple[Tensor | None, ...]:
        x, w_x, w_h, projection, h, keep, *taped = ctx.saved_tensors
        weights = LstmWeights(w_x, w_h, w_h.new_empty(0), projection)
        tape, need = _Tape(*taped), ctx.needs_input_grad
        dx, dh, dc, dgates, dbias = _backward(
            x, weights, h.shape[1], ctx.steps, ctx.rules, keep, ctx.plan, tape, d_out, d_h, d_c, dx=need[0]
        )
        B, (bias_type, c_type) = h.shape[1], ctx.types
        dw_x = dw_h = dw_p = None
        over = dgates.transpose(1, 2)  # (R, 4H, N)
        if ctx.plan.hoist:
            dw_x = _product(over, x, w_x.dtype) if need[1] else None
            dw_h = _product(over, tape.feed, w_h.dtype) if need[2] else None
        elif need[1] or need[2]:
            dw = _product(over, tape.feed, torch.promote_types(w_x.dtype, w_h.dtype))  # (R, 4H, D + P)
            dw_x, dw_h = dw[..., : x.shape[2]], dw[..., x.shape[2] :]
        if projection is not None and need[4]:
            dw_p = _product(dh[:, B:].transpose(1, 2), tape.u, projection.dtype)  # (R, P, H)
        return (
            dx,
            dw_x,
            dw_h,
            dbias.to(bias_type) if need[3] else None,
            dw_p,
            dh[:, :B].to(h.dtype) if need[5] else None,
            dc.to(c_type) if need[6] else None,
            *(None,) * 4,
        )


def _backward(
    x: Tensor,
    weights: LstmWeights,
    B: int,
    steps: tuple[int, ...],
    rules: LstmRules,
    keep: Tensor | None,
    plan: Plan,
    tape: _Tape,
    d_out: Tensor | None,
    d_h: Tensor | None,
    d_c: Tensor | None,
    *,
    dx: bool,
) -> tuple[Tensor | None, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the input, every step's projection (initial output first), the cell, the gates and the bias."""
    (R, N, D), (H, K) = x.shape, (tape.cell.shape[2], tape.feed.shape[2])
    P = weights.h.shape[2]
    dtype, device = x.dtype, x.device
    starts = (0, *accumulate(steps))
    keep = None if keep is None else keep.contiguous()
    clip = rules.proj_clip if tape.raw is not None else None
    if d_out is not None and d_h is None and step_wanted():
        dh = outer_gradient(d_out, tape.raw, B, clip)
    else:
        dh = torch.zeros(R, B + N, P, dtype=dtype, device=device)
        if d_out is not None:
            dh[:, B:].copy_(d_out)
        if d_h is not None:  # each row's last output, or its initial one if it never ran
            for t, (low, high) in enumerate(zip((*steps[1:], 0), steps, strict=True)):
                dh[:, B + starts[t] + low : B + starts[t] + high] += d_h[:, low:high]
            dh[:, steps[0] : B] += d_h[:, steps[0] :]
        if tape.raw is not None and clip is not None:
            dh[:, B:].masked_fill_(tape.raw.abs() > clip, 0.0)
    dcell = torch.zeros(R, B, H, dtype=torch.float32, device=device)
    if d_c is not None:
        dcell.copy_(d_c)
    folded = not plan.hoist and plan.fold_dx
    X = D if folded else 0  # columns of the input in each step's product
    weight = pack_weights(weights, dtype, weave=False, fold=not plan.hoist)  # (R, 4H, K)
    projection = None if weights.projection is None else weights.projection.to(dtype).contiguous()
    dgates = torch.empty_like(tape.gates)
    dinput = torch.empty(R, N, D, dtype=dtype, device=device) if folded else None
    tiles = [plan.cell_backward or cell_backward_tile(rows, dtype) for rows in steps]
    slots = (0, *accumulate(triton.cdiv(rows, tile.rows) for rows, tile in zip(steps, tiles, strict=True)))
    dbias = torch.empty(R, slots[-1], 4 * H, dtype=torch.float32, device=device)
    partial = _parts(plan.feed_split, R, B, X + P, device)
    du = torch.empty(R, B, H, dtype=dtype, device=device)
    exact = "ieee" if dtype == torch.float32 else "tf32"

    for t in reversed(range(len(steps))):
        rows, at, tile = steps[t], starts[t], tiles[t]
        before = 0 if t == 0 else B + starts[t - 1]
        at_du = 0
        if projection is None:
            du, at_du = dh, B + at
        elif plan.library_du:
            du = torch.bmm(dh[:, B + at : B + at + rows], projection)  # (R, rows, H)
        cell_backward_kernel[(triton.cdiv(rows, tile.rows) * triton.cdiv(H, tile.cols), R)](
            dh, projection, du, tape.gates, tape.cell, keep, dcell, dgates, dbias,
            rows, at, B + at, at_du, before, B + at, slots[t], N, B + N, du.shape[1], B + N, B, slots[-1],
            H=H, P=P, PROJECT=projection is not None and not plan.library_du, EARLY=plan.early, KEEP=keep is not None,
            CLIP=rules.cell_clip is not None, FAST=_fast(dtype), PRECISION=exact,
            BM=tile.rows, BU=tile.cols, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        # The initial output was not clipped here: an infinite limit lets everything through to it.
        where = (rows, at, before, 0 if t == 0 else starts[t - 1], N, B + N)
        limit = float("inf") if t == 0 or clip is None else clip
        same = {"P": P, "X": X, "KEEP": keep is not None, "CLIP": clip is not None}
        if plan.library_feed:
            product = torch.bmm(dgates[:, at : at + rows], weight[..., K - X - P :])  # (R, rows, X + P)
            spread_kernel[(triton.cdiv(rows, 4), R)](
                product, dinput, dh, tape.raw, keep, *where, rows, limit, SPLIT=1, **same, BM=4, BN=POINTWISE
            )
            continue
        tile = plan.feed_backward or product_tile(rows, X + P, R, dtype)
        grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(X + P, tile.cols), R, plan.feed_split)
        even = (X + P) % tile.cols == 0 and 4 * H % (tile.depth * plan.feed_split) == 0
        tma = plan.tma and dtype != torch.float32 and even
        feed_backward_kernel[grid](
            _tiles(dgates, tile.rows, tile.depth) if tma else dgates,
            _tiles(weight, tile.depth, tile.cols) if tma else weight,
            dinput, dh, tape.raw, keep, partial, *where, B, limit,
            H=H, K=K, FIRST=K - X - P, SPLIT=plan.feed_split, TMA=tma, PRECISION=exact, **same,
            BM=tile.rows, BN=tile.cols, BK=tile.depth, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip
        if plan.feed_split > 1:
            spread_kernel[(triton.cdiv(rows, 4), R)](
                partial, dinput, dh, tape.raw, keep, *where, B, limit,
                SPLIT=plan.feed_split, **same, BM=4, BN=POINTWISE,
            )  # fmt: skip

    if dinput is None and dx:
        dinput = torch.bmm(dgates, weights.x.to(dtype) if plan.hoist else weight[..., :D])
    return dinput if dx else None, dh, dcell, dgates, dbias.sum(dim=1)


def _last(history: Tensor, initial: Tensor, steps: tuple[int, ...], starts: tuple[int, ...], skip: int) -> Tensor:
    """Each row's value after its last step, from a packed history with `skip` rows in front of it."""
    pieces = []
    end = 0  # rows still running after the step
    for t in reversed(range(len(steps))):
        if steps[t] > end:
            pieces.append(history[:, skip + starts[t] + end : skip + starts[t] + steps[t]].to(initial.dtype))
            end = steps[t]
    if end < initial.shape[1]:
        pieces.append(initial[:, end:])
    return torch.cat(pieces, dim=1)


def _tiles(matrix: Tensor, rows: int, cols: int) -> TensorDescriptor:
    """All directions' rows below each other, to be fetched in tiles of this shape."""
    return TensorDescriptor.from_tensor(matrix.flatten(0, 1), [rows, cols])


def _parts(split: int, R: int, rows: int, cols: int, device: torch.device) -> Tensor | None:
    return torch.empty(split, R, rows, cols, dtype=torch.float32, device=device) if split > 1 else None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """a b, summed in float32 and handed over as `dtype` without a rounding on the way."""
    if a.is_cuda and a.dtype != dtype == torch.float32:
        return torch.bmm(a, b, out_dtype=dtype)
    return torch.bmm(a, b).to(dtype)


def _fast(dtype: torch.dtype) -> bool:
    """The hardware's approximate tanh where values are 16 bits anyway; the interpreter has no such instruction."""
    return dtype != torch.float32 and not triton.knobs.runtime.interpret
