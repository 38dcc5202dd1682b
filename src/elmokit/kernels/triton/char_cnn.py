"""The character convolutions on CUDA: product, maximum over positions and activation in one kernel per filter width.

Words are sorted by length, and a tile of them runs over as many positions as its longest word needs (see
`elmokit.kernels.char_cnn`). Only the maximum reaches memory and, for the backward pass, its position. The gradient goes
to that position alone: the backward kernel repeats the loop with the gradient masked by position.
"""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.kernels.char_cnn import Activation, Filter, word_lengths
from elmokit.kernels.triton._pieces import tanh, within


@triton.jit
def characters_kernel(chars, table, runs, total, E: tl.constexpr, BLOCK: tl.constexpr):
    """runs[i] = table[chars[i]], as `total` numbers; torch's own gives each row of 32 bytes a block of threads."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < total
    char = tl.load(chars + at // E, mask=live, other=0).to(tl.int64)
    tl.store(runs + at, tl.load(table + char * E + at % E, mask=live, other=0.0), mask=live)


@triton.jit(do_not_specialize=["U", "first"])
def char_cnn_kernel(
    runs, weight, bias, order, lengths, out, place, U, first,
    C: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr, ALL: tl.constexpr,
    TANH: tl.constexpr, SAVE: tl.constexpr, FAST: tl.constexpr, PRECISION: tl.constexpr,
    BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """BW words x BN filters. `runs` (U, C, E) embedded characters in order of length; `out` (U, ALL) as given."""
    word = tl.program_id(0) * BW + tl.arange(0, BW)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    near = tl.minimum(word, U - 1)
    near_n = within(n, N, BN)
    longest = tl.load(
        lengths + tl.minimum((tl.program_id(0) + 1) * BW, U) - 1
    )  # of a tile in order of length: its last
    windows = tl.minimum(longest, C - WIDTH) + 1
    runs_at = runs + near.to(tl.int64)[:, None] * (C * E) + k[None, :]
    weight_at = weight + k[:, None] * N + near_n[None, :]
    best = tl.full((BW, BN), float("-inf"), tl.float32)
    where = tl.zeros((BW, BN), tl.int32)
    if WIDTH * E <= BK:  # the whole window at once: the weights stay where they are
        w = tl.load(weight_at, mask=(k < WIDTH * E)[:, None], other=0.0)
        for p in range(windows):
            a = tl.load(runs_at, mask=(k < WIDTH * E)[None, :], other=0.0)
            value = tl.dot(a, w, input_precision=PRECISION)
            if SAVE:
                where = tl.where(value > best, p, where)
            best = tl.maximum(best, value)
            runs_at += E
    else:
        for p in range(windows):
            value = tl.zeros((BW, BN), tl.float32)
            for start in range(0, WIDTH * E, BK):
                inside = k < WIDTH * E - start
                a = tl.load(runs_at + start, mask=inside[None, :], other=0.0)
                w = tl.load(weight_at + start * N, mask=inside[:, None], other=0.0)
                value = tl.dot(a, w, value, input_precision=PRECISION)
            if SAVE:
                where = tl.where(value > best, p, where)
            best = tl.maximum(best, value)
            runs_at += E
    best += tl.load(bias + near_n).to(tl.float32)[None, :]
    if TANH:
        best = tanh(best, FAST)
    else:
        best = tl.maximum(best, 0.0)
    live = (word < U)[:, None] & (n < N)[None, :]
    row = tl.load(order + near)  # where the word stood before the sort
    tl.store(out + row[:, None] * ALL + (first + n)[None, :], best.to(out.dtype.element_ty), mask=live)
    if SAVE:
        tl.store(place + near.to(tl.int64)[:, None] * ALL + (first + n)[None, :], where.to(tl.uint8), mask=live)


@triton.jit(do_not_specialize=["U", "first", "tiles"])
def char_cnn_backward_kernel(
    runs, weight, order, lengths, dout, place, dweight, druns, U, first, tiles,
    C: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr, N: tl.constexpr, ALL: tl.constexpr,
    PRECISION: tl.constexpr, BW: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`tiles` times BW words x BN filters x BK of the window: their part of the gradients of both."""
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    near_n = within(n, N, BN)
    inside = k < WIDTH * E
    w = tl.load(weight + k[:, None] * N + near_n[None, :], mask=inside[:, None], other=0.0)
    dw = tl.zeros((BK, BN), tl.float32)
    for tile in range(tiles):
        word = (tl.program_id(0) * tiles + tile) * BW + tl.arange(0, BW)
        near = tl.minimum(word, U - 1)
        live = (word < U)[:, None] & (n < N)[None, :]
        row = tl.load(order + near)
        d = tl.load(dout + row[:, None] * ALL + (first + n)[None, :], mask=live, other=0.0)
        at = near.to(tl.int64)[:, None] * ALL + (first + n)[None, :]
        where = tl.load(place + at, mask=live, other=0).to(tl.int32)
        begin = (tl.program_id(0) * tiles + tile) * BW
        longest = tl.load(lengths + tl.minimum(begin + BW, U) - 1)
        windows = tl.where(begin < U, tl.minimum(longest, C - WIDTH) + 1, 0)
        spot = near.to(tl.int64)[:, None] * (C * E) + k[None, :]
        exists = (word < U)[:, None] & inside[None, :]
        for p in range(windows):
            mine = tl.where(where == p, d, 0.0)
            a = tl.load(runs + spot + p * E, mask=inside[None, :], other=0.0)
            dw = tl.dot(tl.trans(a), mine.to(a.dtype), dw, input_precision=PRECISION)
            da = tl.dot(mine.to(a.dtype), tl.trans(w), input_precision=PRECISION)
            tl.atomic_add(druns + spot + p * E, da, mask=exists, sem="relaxed")
    tl.atomic_add(dweight + k[:, None] * N + n[None, :], dw, mask=inside[:, None] & (n < N)[None, :], sem="relaxed")


@triton.jit(do_not_specialize=["total", "blocks"])
def table_backward_kernel(
    chars, druns, dtable, total, blocks, A: tl.constexpr, E: tl.constexpr,
    BA: tl.constexpr, BE: tl.constexpr, BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dtable[a] = sum of the gradients of the places where character a stands, as a product with a one-hot matrix:
    thousands of places add to the same few rows, which as single atomic additions would wait for one another."""
    a = tl.program_id(1) * BA + tl.arange(0, BA)
    e = tl.arange(0, BE)
    acc = tl.zeros((BA, BE), tl.float32)
    for block in range(blocks):
        place = (tl.program_id(0) * blocks + block) * BP + tl.arange(0, BP)
        char = tl.load(chars + place, mask=place < total, other=-1)
        one_hot = (a[:, None] == char[None, :]).to(tl.float32)
        at = place.to(tl.int64)[:, None] * E + e[None, :]
        d = tl.load(druns + at, mask=(place < total)[:, None] & (e < E)[None, :], other=0.0)
        acc = tl.dot(one_hot, d, acc, input_precision=PRECISION)
    tl.atomic_add(dtable + a[:, None] * E + e[None, :], acc, mask=(a < A)[:, None] & (e < E)[None, :], sem="relaxed")


def triton_char_cnn(
    chars: Tensor, table: Tensor, filters: Sequence[Filter], activation: Activation, *, pad: int | None
) -> Tensor:
    """As `reference_char_cnn`; products in the table's type, sums in float32."""
    flat = [part for bank in filters for part in bank]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (table, *flat)):
        out: Tensor = _CharCnn.apply(chars, table, activation, pad, *flat)  # type: ignore[no-untyped-call]
        return out
    return _forward(chars, table, flat, activation, pad, save=False)[0]


class _CharCnn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, chars: Tensor, table: Tensor, activation: Activation, pad: int | None, *flat: Tensor
    ) -> Tensor:
        out, ordered, runs, order, lengths, place, wide = _forward(chars, table, flat, activation, pad, save=True)
        ctx.save_for_backward(table, out, ordered, runs, order, lengths, place, *wide)
        ctx.activation, ctx.types = activation, [part.dtype for part in flat]
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        table, out, ordered, runs, order, lengths, place, *wide = ctx.saved_tensors
        if ctx.activation == "tanh":
            d = d_out * (1.0 - out * out)
        else:
            d = d_out.masked_fill(out <= 0, 0.0)  # (U, sum n)
        d = d.contiguous()
        (U, C, E), (A, _) = runs.shape, table.shape
        druns = torch.zeros(U, C, E, dtype=torch.float32, device=runs.device)
        dbias = d.sum(dim=0, dtype=torch.float32)  # (sum n,)
        biases = {kind: dbias.to(kind) for kind in set(ctx.types[1::2])}
        sizes = [weight.numel() for weight in wide]
        parts = torch.split(torch.zeros(sum(sizes), dtype=torch.float32, device=runs.device), sizes)
        grads: list[Tensor | None] = []
        first = 0
        for k, (weight, part) in enumerate(zip(wide, parts, strict=True)):
            width, _, n = weight.shape
            dw = part.view(width * E, n)
            BW, BN, BK = _blocks(n, width * E, runs.dtype)
            tiles = max(1, triton.cdiv(U, BW) * triton.cdiv(n, BN) // 1024)  # about a thousand programs share the words
            grid = (triton.cdiv(triton.cdiv(U, BW), tiles), triton.cdiv(n, BN), triton.cdiv(width * E, BK))
            char_cnn_backward_kernel[grid](
                runs, weight, order, lengths, d, place, dw, druns, U, first, tiles,
                C=C, E=E, WIDTH=width, N=n, ALL=out.shape[1], PRECISION=_precision(runs.dtype),
                BW=BW, BN=BN, BK=BK, num_warps=4 if BN * BK < 64 * 128 else 8, num_stages=2,
            )  # fmt: skip
            grads.append(dw.view(width, E, n).permute(2, 1, 0).to(ctx.types[2 * k]))
            grads.append(biases[ctx.types[2 * k + 1]][first : first + n])
            first += n
        dtable = torch.zeros(A, E, dtype=torch.float32, device=table.device)
        blocks = max(1, triton.cdiv(U * C, 64) // 512)  # about five hundred programs share the places
        table_backward_kernel[(triton.cdiv(triton.cdiv(U * C, 64), blocks), triton.cdiv(A, 64))](
            ordered, druns, dtable, U * C, blocks, A=A, E=E, BA=64, BE=_power(E), BP=64,
            PRECISION=_precision(runs.dtype), num_warps=4, num_stages=2,
        )  # fmt: skip
        return None, dtable.to(table.dtype), None, None, *grads


def _forward(
    chars: Tensor, table: Tensor, flat: Sequence[Tensor], activation: Activation, pad: int | None, *, save: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, list[Tensor]]:
    """The result; what the backward pass reads: words in order, their vectors, that order, lengths, maxima, weights."""
    U, C = chars.shape
    E = table.shape[1]
    lengths, order = word_lengths(chars, pad).sort()  # (U,), (U,)
    ordered = chars[order]  # (U, C)
    runs = torch.empty(U, C, E, dtype=table.dtype, device=table.device)  # (U, C, E)
    if U:
        characters_kernel[(triton.cdiv(runs.numel(), 2048),)](
            ordered, table.contiguous(), runs, runs.numel(), E=E, BLOCK=2048, num_warps=4
        )
    columns = sum(weight.shape[0] for weight in flat[::2])
    out = torch.empty(U, columns, dtype=table.dtype, device=table.device)  # (U, sum n)
    place = torch.empty(U, columns, dtype=torch.uint8, device=table.device) if save else None
    wide = [_flat_weight(weight, table.dtype) for weight in flat[::2]]  # (width, E, n) each
    first = 0
    for weight, bias in zip(wide, flat[1::2], strict=True):
        width, _, n = weight.shape
        BW, BN, BK = _blocks(n, width * E, table.dtype)
        char_cnn_kernel[(triton.cdiv(U, BW), triton.cdiv(n, BN))](
            runs, weight, bias, order, lengths, out, place, U, first,
            C=C, E=E, WIDTH=width, N=n, ALL=columns, TANH=activation == "tanh", SAVE=save,
            FAST=table.dtype != torch.float32 and not triton.knobs.runtime.interpret,
            PRECISION=_precision(table.dtype), BW=BW, BN=BN, BK=BK, num_warps=4, num_stages=3,
        )  # fmt: skip
        first += n
    return out, ordered, runs, order, lengths, place, wide


def _flat_weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return weight.permute(2, 1, 0).to(dtype).contiguous()  # (width, E, n): one row per element of a window


def _blocks(n: int, window: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Words, filters and elements of the window that a program takes. In float32 there are no tensor cores to feed."""
    if dtype == torch.float32:
        return 32, min(32, _power(n)), min(32, _power(window))
    return 64, min(128, _power(n)), min(128, _power(window))


def _power(size: int) -> int:
    return int(max(16, triton.next_power_of_2(size)))


def _precision(dtype: torch.dtype) -> str:
    return "ieee" if dtype == torch.float32 else "tf32"
