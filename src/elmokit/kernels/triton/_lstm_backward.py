"""Backward kernels of the recurrence: per step one for the cell, one that carries the gradient to the step before.

`dh` is (R, B + N, P): the gradient of each step's projection before its clip; its first B rows are the initial
output's. It starts as what comes from outside, and each step adds its share to the rows of the step before. The
gradients of all weights need every step's `dgates` and are large products, made once at the end.
"""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

import triton
import triton.language as tl

from elmokit.kernels.triton._pieces import alive, product, tanh, within

_CELL_VARY = [
    "rows", "at", "at_dh", "at_du", "at_before", "at_after", "slot",
    "rows_all", "rows_dh", "rows_du", "rows_cell", "rows_dcell", "slots",
]  # fmt: skip


@triton.jit
def _cell_inputs(gates, after, before, dcell, live, H: tl.constexpr):
    """The four gates, the cell after and before the step, and the gradient that the next step left for it."""
    i = tl.load(gates, mask=live, other=0.0)
    j = tl.load(gates + H, mask=live, other=0.0)
    f = tl.load(gates + 2 * H, mask=live, other=0.0)
    o = tl.load(gates + 3 * H, mask=live, other=0.0)
    c = tl.load(after, mask=live, other=0.0)
    c_before = tl.load(before, mask=live, other=0.0)
    dc = tl.load(dcell, mask=live, other=0.0)
    return i, j, f, o, c, c_before, dc


@triton.jit(do_not_specialize=_CELL_VARY)
def cell_backward_kernel(
    dh, weight, du, gates, cell, keep, dcell, dgates, dbias,
    rows, at, at_dh, at_du, at_before, at_after, slot, rows_all, rows_dh, rows_du, rows_cell, rows_dcell, slots,
    H: tl.constexpr, P: tl.constexpr,
    PROJECT: tl.constexpr, EARLY: tl.constexpr, KEEP: tl.constexpr, CLIP: tl.constexpr, FAST: tl.constexpr,
    PRECISION: tl.constexpr, BM: tl.constexpr, BU: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """du = dh projection, then through o * tanh(c), the clip and the cell to the gates' pre-activations.

    Without PROJECT, `du` was made elsewhere. With it, the tile is written to `du` and read back: in the layout of the
    product the compiler would shuffle every one of the other operands to match it, each through shared memory.
    """
    tile = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    row_tiles = tl.cdiv(rows, BM)
    row = (tile % row_tiles) * BM + tl.arange(0, BM)
    unit = (tile // row_tiles) * BU + tl.arange(0, BU)
    near = tl.minimum(row, rows - 1)
    near_unit = within(unit, H, BU)
    live = alive(row, rows, unit, H, BU)
    spot = row[:, None] * H + unit[None, :]
    du_at = du + (r * rows_du + at_du) * H + spot
    gates_at = (r * rows_all + at) * 4 * H + row[:, None] * 4 * H + unit[None, :]
    after = cell + (r * rows_cell + at_after) * H + spot
    before = cell + (r * rows_cell + at_before) * H + spot
    dcell_at = dcell + r * rows_dcell * H + spot
    if EARLY:  # they are on their way while the product is made
        i, j, f, o, c, c_before, dc = _cell_inputs(gates + gates_at, after, before, dcell_at, live, H)
    if PROJECT:
        k = tl.arange(0, BK)
        dh_at = dh + (r * rows_dh + at_dh) * P + near[:, None] * P + k[None, :]
        weight_at = weight + r * P * H + k[:, None] * H + near_unit[None, :]
        acc = product(tl.zeros((BM, BU), tl.float32), dh_at, weight_at, k, P, BK, H, PRECISION)
        tl.store(du_at, acc.to(du.dtype.element_ty), mask=live)
        tl.debug_barrier()  # what one thread of the program wrote, another reads
    d = tl.load(du_at, mask=live, other=0.0).to(tl.float32)
    if not EARLY:
        i, j, f, o, c, c_before, dc = _cell_inputs(gates + gates_at, after, before, dcell_at, live, H)
    i, j, f, o = i.to(tl.float32), j.to(tl.float32), f.to(tl.float32), o.to(tl.float32)
    squashed = tanh(c, FAST)
    dc += d * o * (1.0 - squashed * squashed)
    if CLIP:
        dc = tl.where(f < 0.0, 0.0, dc)  # the forward pass marked clipped cells so
        f = tl.abs(f)
    carried = dc * f
    if KEEP:
        kept = tl.load(keep + r * rows_all + at + near).to(tl.float32)[:, None]
        carried *= kept
        c_before *= kept
    tl.store(dcell_at, carried, mask=live)
    di = dc * j * i * (1.0 - i)  # all zero in rows past the end: every factor was read as zero there
    dj = dc * i * (1.0 - j * j)
    df = dc * c_before * f * (1.0 - f)
    do = d * squashed * o * (1.0 - o)
    kind = dgates.dtype.element_ty
    tl.store(dgates + gates_at, di.to(kind), mask=live)
    tl.store(dgates + gates_at + H, dj.to(kind), mask=live)
    tl.store(dgates + gates_at + 2 * H, df.to(kind), mask=live)
    tl.store(dgates + gates_at + 3 * H, do.to(kind), mask=live)
    # The bias's gradient, while it is in registers: one partial sum per tile, added up in a fixed order later, instead
    # of reading all of dgates again for it.
    dbias_at = dbias + (r * slots + slot + tile % row_tiles) * 4 * H + unit
    tl.store(dbias_at, tl.sum(di, axis=0), mask=unit < H)
    tl.store(dbias_at + H, tl.sum(dj, axis=0), mask=unit < H)
    tl.store(dbias_at + 2 * H, tl.sum(df, axis=0), mask=unit < H)
    tl.store(dbias_at + 3 * H, tl.sum(do, axis=0), mask=unit < H)


@triton.jit
def _emit(
    d, r, row, col, live, dx, dh, raw, keep, at, at_dh, at_raw, rows_all, rows_dh, proj_clip,
    P: tl.constexpr, X: tl.constexpr, KEEP: tl.constexpr, CLIP: tl.constexpr,
):  # fmt: skip
    """Share out the gradient of the feed: columns before X are the input's, the others the previous output's."""
    if X > 0:
        dx_at = dx + (r * rows_all + at) * X + row[:, None] * X + col[None, :]
        tl.store(dx_at, d.to(dx.dtype.element_ty), mask=live & (col < X)[None, :])
    theirs = live & (col >= X)[None, :]
    if KEEP:
        d *= tl.load(keep + r * rows_all + at + row).to(tl.float32)[:, None]
    if CLIP:
        raw_at = raw + (r * rows_all + at_raw) * P + row[:, None] * P + (col - X)[None, :]
        h = tl.load(raw_at, mask=theirs, other=0.0).to(tl.float32)
        d = tl.where(tl.abs(h) <= proj_clip, d, 0.0)
    dh_at = dh + (r * rows_dh + at_dh) * P + row[:, None] * P + (col - X)[None, :]
    d += tl.load(dh_at, mask=theirs, other=0.0).to(tl.float32)
    tl.store(dh_at, d.to(dh.dtype.element_ty), mask=theirs)


_FEED_VARY = ["rows", "at", "at_dh", "at_raw", "rows_all", "rows_dh", "rows_partial", "proj_clip"]


@triton.jit(do_not_specialize=_FEED_VARY)
def feed_backward_kernel(
    dgates, weight, dx, dh, raw, keep, partial,
    rows, at, at_dh, at_raw, rows_all, rows_dh, rows_partial, proj_clip,
    H: tl.constexpr, K: tl.constexpr, P: tl.constexpr, FIRST: tl.constexpr, X: tl.constexpr, SPLIT: tl.constexpr,
    TMA: tl.constexpr, KEEP: tl.constexpr, CLIP: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """dfeed = dgates weight, columns FIRST.. of K, of which the first X are the input's. SPLIT as in the projection."""
    tile = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    row_tiles = tl.cdiv(rows, BM)
    row = (tile % row_tiles) * BM + tl.arange(0, BM)
    col = (tile // row_tiles) * BN + tl.arange(0, BN)
    near = tl.minimum(row, rows - 1)
    near_col = within(col, K - FIRST, BN)
    k = part * BK + tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    if TMA:  # `dgates` and `weight` are descriptors, as in the forward pass
        dgates_row = (tl.program_id(1) * rows_all + at + (tile % row_tiles) * BM).to(tl.int32)
        weight_row = (tl.program_id(1) * 4 * H).to(tl.int32)
        first = FIRST + (tile // row_tiles) * BN
        for start in range(part * BK, 4 * H, BK * SPLIT):
            acc = tl.dot(dgates.load([dgates_row, start]), weight.load([weight_row + start, first]), acc)
    else:
        dgates_at = dgates + (r * rows_all + at) * 4 * H + near[:, None] * 4 * H + k[None, :]
        weight_at = weight + r * 4 * H * K + FIRST + k[:, None] * K + near_col[None, :]
        acc = product(acc, dgates_at, weight_at, k, 4 * H, BK * SPLIT, K, PRECISION)
    live = alive(row, rows, col, K - FIRST, BN)
    if SPLIT > 1:
        spot = ((part * tl.num_programs(1) + r) * rows_partial + row[:, None]) * (K - FIRST) + col[None, :]
        tl.store(partial + spot, acc, mask=live)
    else:
        _emit(
            acc, r, near, col, live, dx, dh, raw, keep, at, at_dh, at_raw, rows_all, rows_dh, proj_clip,
            P, X, KEEP, CLIP,
        )  # fmt: skip


@triton.jit(do_not_specialize=_FEED_VARY)
def spread_kernel(
    partial, dx, dh, raw, keep,
    rows, at, at_dh, at_raw, rows_all, rows_dh, rows_partial, proj_clip,
    P: tl.constexpr, X: tl.constexpr, SPLIT: tl.constexpr,
    KEEP: tl.constexpr, CLIP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add up the parts of a gradient of the feed (SPLIT, R, rows, X + P) and share it out."""
    r = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    near = tl.minimum(row, rows - 1)
    for first in range(0, X + P, BN):
        col = first + tl.arange(0, BN)
        live = alive(row, rows, col, X + P, BN)
        d = tl.zeros((BM, BN), tl.float32)
        for part in tl.static_range(SPLIT):
            at_part = (part * tl.num_programs(1) + r) * rows_partial
            d += tl.load(partial + (at_part + near[:, None]) * (X + P) + col[None, :], mask=live, other=0.0).to(
                tl.float32
            )
        _emit(
            d, r, near, col, live, dx, dh, raw, keep, at, at_dh, at_raw, rows_all, rows_dh, proj_clip, P, X, KEEP, CLIP
        )
