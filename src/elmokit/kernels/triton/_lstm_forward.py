"""Forward kernels of the recurrence: per step one for the gates and the cell, one for the projection.

`feed` holds what the gates read: (R, N, K), either [x ; previous output] (K = D + P: the input product is *folded*
into the step, so that (R, N, 4H) pre-activations never go through memory) or the previous output alone (K = P: the
input product was *hoisted* into one large product beforehand, `ready`). The projection writes the next step's part of
it, already multiplied by `keep`. Row k of a step follows row k of the step before. Arguments named `at_*` are the
step's first row in a buffer, `rows_*` the rows that the buffer holds per direction; they vary by step and are not
specialised on.
"""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

import triton
import triton.language as tl

from elmokit.kernels.triton._pieces import alive, clamp, product, sigmoid, tanh, within

_GATES_VARY = [
    "rows", "at", "at_feed", "at_ready", "at_before", "at_after", "at_u",
    "rows_all", "rows_feed", "rows_ready", "rows_cell", "rows_u",
]  # fmt: skip


@triton.jit(do_not_specialize=_GATES_VARY)
def gates_kernel(
    feed, weight, bias, ready, keep, cell, gates, u,
    rows, at, at_feed, at_ready, at_before, at_after, at_u, rows_all, rows_feed, rows_ready, rows_cell, rows_u,
    forget_bias, cell_clip,
    H: tl.constexpr, K: tl.constexpr,
    HOIST: tl.constexpr, WOVEN: tl.constexpr, TMA: tl.constexpr, KEEP: tl.constexpr, CLIP: tl.constexpr,
    SAVE: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """One tile: BM rows of BU cell units with all four gates of each, so that the cell never leaves registers.

    Rows run fastest over the grid: programs that run together share a tile of the weights, which are streamed once.
    """
    tile = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    row_tiles = tl.cdiv(rows, BM)
    row = (tile % row_tiles) * BM + tl.arange(0, BM)
    unit = (tile // row_tiles) * BU + tl.arange(0, BU)
    near = tl.minimum(row, rows - 1)  # rows past the end repeat the last: no masks in the loop
    near_unit = within(unit, H, BU)
    k = tl.arange(0, BK)
    if TMA:  # the copy engine fetches whole tiles; `feed` and `weight` are descriptors. It implies WOVEN
        feed_row = (tl.program_id(1) * rows_feed + at_feed + (tile % row_tiles) * BM).to(tl.int32)
        weight_row = (tl.program_id(1) * 4 * H + (tile // row_tiles) * 4 * BU).to(tl.int32)
        acc = tl.zeros((BM, 4 * BU), tl.float32)
        for start in range(0, K, BK):
            acc = tl.dot(feed.load([feed_row, start]), weight.load([weight_row, start]).T, acc)
    elif WOVEN:
        feed_at = feed + (r * rows_feed + at_feed) * K + near[:, None] * K + k[None, :]
        n = within((tile // row_tiles) * 4 * BU + tl.arange(0, 4 * BU), 4 * H, 4 * BU)
        weight_at = weight + r * 4 * H * K + n[None, :] * K + k[:, None]
        acc = product(tl.zeros((BM, 4 * BU), tl.float32), feed_at, weight_at, k, K, BK, 1, PRECISION)
    else:
        feed_at = feed + (r * rows_feed + at_feed) * K + near[:, None] * K + k[None, :]
        weight_at = weight + r * 4 * H * K + near_unit[None, :] * K + k[:, None]
        i = tl.zeros((BM, BU), tl.float32)
        j = tl.zeros((BM, BU), tl.float32)
        f = tl.zeros((BM, BU), tl.float32)
        o = tl.zeros((BM, BU), tl.float32)
        for start in range(0, K, BK):
            inside = k < K - start
            if K % BK == 0:
                a = tl.load(feed_at)
                i = tl.dot(a, tl.load(weight_at), i, input_precision=PRECISION)
                j = tl.dot(a, tl.load(weight_at + H * K), j, input_precision=PRECISION)
                f = tl.dot(a, tl.load(weight_at + 2 * H * K), f, input_precision=PRECISION)
                o = tl.dot(a, tl.load(weight_at + 3 * H * K), o, input_precision=PRECISION)
            else:
                a = tl.load(feed_at, mask=inside[None, :], other=0.0)
                w_i = tl.load(weight_at, mask=inside[:, None], other=0.0)
                w_j = tl.load(weight_at + H * K, mask=inside[:, None], other=0.0)
                w_f = tl.load(weight_at + 2 * H * K, mask=inside[:, None], other=0.0)
                w_o = tl.load(weight_at + 3 * H * K, mask=inside[:, None], other=0.0)
                i = tl.dot(a, w_i, i, input_precision=PRECISION)
                j = tl.dot(a, w_j, j, input_precision=PRECISION)
                f = tl.dot(a, w_f, f, input_precision=PRECISION)
                o = tl.dot(a, w_o, o, input_precision=PRECISION)
            feed_at += BK
            weight_at += BK

    if WOVEN:
        # Weight rows are in the order of elmokit.kernels.triton._lstm_plan.pack_weights: one wide product, then a split
        # of it that moves nothing between threads, because the order follows the tensor core's own layout.
        quads = tl.permute(tl.reshape(acc, (BM, BU // 4, 2, 4, 2)), (0, 1, 3, 2, 4))
        even, odd = tl.split(tl.reshape(quads, (BM, BU, 2, 2)))
        i, f = tl.split(even)
        j, o = tl.split(odd)
    live = alive(row, rows, unit, H, BU)
    if HOIST:
        ready_at = ready + (r * rows_ready + at_ready) * 4 * H + near[:, None] * 4 * H + near_unit[None, :]
        i += tl.load(ready_at).to(tl.float32)
        j += tl.load(ready_at + H).to(tl.float32)
        f += tl.load(ready_at + 2 * H).to(tl.float32)
        o += tl.load(ready_at + 3 * H).to(tl.float32)
    else:
        bias_at = bias + r * 4 * H + near_unit
        i += tl.load(bias_at).to(tl.float32)[None, :]
        j += tl.load(bias_at + H).to(tl.float32)[None, :]
        f += tl.load(bias_at + 2 * H).to(tl.float32)[None, :]
        o += tl.load(bias_at + 3 * H).to(tl.float32)[None, :]
    i = sigmoid(i, FAST)
    j = tanh(j, FAST)
    f = sigmoid(f + forget_bias, FAST)
    o = sigmoid(o, FAST)
    spot = row[:, None] * H + unit[None, :]
    c = tl.load(cell + (r * rows_cell + at_before) * H + spot, mask=live, other=0.0)
    if KEEP:
        c *= tl.load(keep + r * rows_all + at + near).to(tl.float32)[:, None]
    c = f * c + i * j
    if SAVE:
        if CLIP:  # the sign of f (never negative itself) tells the backward pass where the clip stopped the gradient
            f = tl.where(tl.abs(c) > cell_clip, -f, f)
        gates_at = gates + (r * rows_all + at) * 4 * H + row[:, None] * 4 * H + unit[None, :]
        kind = gates.dtype.element_ty
        tl.store(gates_at, i.to(kind), mask=live)
        tl.store(gates_at + H, j.to(kind), mask=live)
        tl.store(gates_at + 2 * H, f.to(kind), mask=live)
        tl.store(gates_at + 3 * H, o.to(kind), mask=live)
    if CLIP:
        c = clamp(c, cell_clip)
    tl.store(cell + (r * rows_cell + at_after) * H + spot, c, mask=live)
    tl.store(u + (r * rows_u + at_u) * H + spot, (o * tanh(c, FAST)).to(u.dtype.element_ty), mask=live)


@triton.jit
def _emit(
    h, r, row, col, live, out, raw, keep, feed, at, next_at, next_rows, at_feed, rows_all, rows_feed, proj_clip,
    P: tl.constexpr, K: tl.constexpr, KEEP: tl.constexpr, CLIP: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Clip the projection; write the output, what the backward pass needs, and the next step's feed."""
    spot = (r * rows_all + at) * P + row[:, None] * P + col[None, :]
    if CLIP:
        if SAVE:
            tl.store(raw + spot, h.to(raw.dtype.element_ty), mask=live)
            h = h.to(raw.dtype.element_ty).to(tl.float32)  # the clip must judge the value that backward will see
        h = clamp(h, proj_clip)
    tl.store(out + spot, h.to(out.dtype.element_ty), mask=live)
    going = row < next_rows
    if KEEP:
        h *= tl.load(keep + r * rows_all + next_at + row, mask=going, other=0).to(tl.float32)[:, None]
    feed_at = feed + (r * rows_feed + at_feed) * K + (K - P) + row[:, None] * K + col[None, :]
    tl.store(feed_at, h.to(feed.dtype.element_ty), mask=live & going[:, None])


_PROJECT_VARY = [
    "rows", "at", "at_u", "next_at", "next_rows", "at_feed", "rows_all", "rows_u", "rows_feed", "rows_partial",
]  # fmt: skip


@triton.jit(do_not_specialize=_PROJECT_VARY)
def project_kernel(
    u, weight, out, raw, keep, feed, partial,
    rows, at, at_u, next_at, next_rows, at_feed, rows_all, rows_u, rows_feed, rows_partial, proj_clip,
    H: tl.constexpr, P: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr,
    KEEP: tl.constexpr, CLIP: tl.constexpr, SAVE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """u projection^T, clipped. With SPLIT > 1 the sum over H is shared out and `carry_kernel` finishes it."""
    tile = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    row_tiles = tl.cdiv(rows, BM)
    row = (tile % row_tiles) * BM + tl.arange(0, BM)
    col = (tile // row_tiles) * BN + tl.arange(0, BN)
    near = tl.minimum(row, rows - 1)
    near_col = within(col, P, BN)
    k = part * BK + tl.arange(0, BK)
    u_at = u + (r * rows_u + at_u) * H + near[:, None] * H + k[None, :]
    weight_at = weight + r * P * H + near_col[None, :] * H + k[:, None]
    acc = product(tl.zeros((BM, BN), tl.float32), u_at, weight_at, k, H, BK * SPLIT, 1, PRECISION)
    live = alive(row, rows, col, P, BN)
    if SPLIT > 1:
        spot = ((part * tl.num_programs(1) + r) * rows_partial + row[:, None]) * P + col[None, :]
        tl.store(partial + spot, acc, mask=live)
    else:
        _emit(
            acc, r, row, col, live, out, raw, keep, feed, at, next_at, next_rows, at_feed, rows_all, rows_feed,
            proj_clip, P, K, KEEP, CLIP, SAVE,
        )  # fmt: skip


_CARRY_VARY = ["rows", "at", "next_at", "next_rows", "at_feed", "rows_all", "rows_feed", "at_partial", "rows_partial"]


@triton.jit(do_not_specialize=_CARRY_VARY)
def carry_kernel(
    partial, out, raw, keep, feed,
    rows, at, next_at, next_rows, at_feed, rows_all, rows_feed, at_partial, rows_partial, proj_clip,
    P: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr,
    KEEP: tl.constexpr, CLIP: tl.constexpr, SAVE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up the parts of a product (SPLIT, R, rows, P), then as the projection. One part: a product made elsewhere."""
    r = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    for first in range(0, P, BN):
        col = first + tl.arange(0, BN)
        live = alive(row, rows, col, P, BN)
        h = tl.zeros((BM, BN), tl.float32)
        for part in tl.static_range(SPLIT):
            at_part = (part * tl.num_programs(1) + r) * rows_partial + at_partial
            h += tl.load(partial + (at_part + row[:, None]) * P + col[None, :], mask=live, other=0.0).to(tl.float32)
        _emit(
            h, r, row, col, live, out, raw, keep, feed, at, next_at, next_rows, at_feed, rows_all, rows_feed,
            proj_clip, P, K, KEEP, CLIP, SAVE,
        )  # fmt: skip
