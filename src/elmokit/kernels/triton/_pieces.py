"""Pieces that the Triton kernels share: the nonlinearities, and the shape of a tile."""
# mypy: disable-error-code="no-untyped-def, misc, type-arg, no-any-return, untyped-decorator"

from dataclasses import dataclass

import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class Tile:
    """What one program of a matrix kernel computes: rows x cols of the result, `depth` of the sum at a time."""

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int


@triton.jit
def tanh(x, FAST: tl.constexpr):
    """FAST is the hardware's own instruction (relative error 2^-11), finer than any 16-bit float keeps."""
    if FAST:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def sigmoid(x, FAST: tl.constexpr):
    if FAST:  # one special-function instruction instead of two: they bound the epilogue
        return 0.5 * tanh(0.5 * x, FAST) + 0.5
    return tl.sigmoid(x)


@triton.jit
def clamp(x, limit):
    return tl.minimum(tl.maximum(x, -limit), limit)


@triton.jit
def within(col, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Columns past the end repeat the last. Where blocks divide evenly nothing is done: the compiler must be able to
    see that neighbours are neighbours, or it reads element by element."""
    if COLS % BLOCK == 0:
        return col
    return tl.minimum(col, COLS - 1)


@triton.jit
def alive(row, rows, col, COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Which elements of a tile exist."""
    live = (row < rows)[:, None]
    if COLS % BLOCK == 0:
        return live & tl.full((1, BLOCK), 1, tl.int1)
    return live & (col < COLS)[None, :]


@triton.jit
def product(acc, a_at, b_at, k, DEPTH: tl.constexpr, STEP: tl.constexpr, ROW: tl.constexpr, PRECISION: tl.constexpr):
    """acc plus the sum of products of tiles of a and b, STEP apart along DEPTH; a row of b holds ROW numbers."""
    for start in range(0, DEPTH, STEP):
        if DEPTH % STEP == 0:
            acc = tl.dot(tl.load(a_at), tl.load(b_at), acc, input_precision=PRECISION)
        else:
            inside = k < DEPTH - start
            a = tl.load(a_at, mask=inside[None, :], other=0.0)
            acc = tl.dot(a, tl.load(b_at, mask=inside[:, None], other=0.0), acc, input_precision=PRECISION)
        a_at += STEP
        b_at += STEP * ROW
    return acc
