"""How the Triton recurrence runs one call: what is folded, which block shapes, which products go to the library.

The table follows from counting bytes, registers and shared memory for an H200; `benchmarks/kernels.py --bench` times it
beside its alternatives. Any `Plan` gives the same numbers up to rounding, so a wrong guess costs time only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from elmokit.kernels.reference import LstmWeights
from elmokit.kernels.triton._pieces import Tile

PROGRAMS = 120  # enough programs to fill a large GPU with one each
HOIST_BELOW = 96  # mean rows per step under which reading the input weights at every step costs more than it saves


@dataclass(frozen=True, slots=True)
class Plan:
    """Choices for one call; a None tile leaves that product to the library, with a pointwise kernel after it."""

    hoist: bool  # the input product beforehand, instead of folded into every step
    weave: bool  # gate rows of the weights interleaved: one wide product instead of four narrow ones
    gates: Tile | None = None  # None: by the rows of each step
    project: Tile | None = None
    cell_backward: Tile | None = None
    feed_backward: Tile | None = None
    tma: bool = False  # Hopper's copy engine for the two large products of a step; only where tiles divide evenly
    project_split: int = 1  # the sum over H shared out among so many programs
    feed_split: int = 1
    library_project: bool = False  # the library's matrix product and a pointwise kernel instead of one fused kernel
    library_du: bool = False
    library_feed: bool = False
    early: bool = False  # the backward pass of the cell fetches its operands before its product, not after
    fold_dx: bool = True  # the input's gradient in the same product as the previous output's, where folded


def choose_plan(steps: tuple[int, ...], cell: int, dtype: torch.dtype) -> Plan:
    """The plan for a call of these rows per step; tiles are left to each step's number of rows."""
    rows = sum(steps) / max(len(steps), 1)
    return Plan(hoist=rows < HOIST_BELOW, weave=cell % 4 == 0 and dtype != torch.float32 and rows > 16)


def gates_tile(rows: int, dtype: torch.dtype) -> Tile:
    """`cols` counts cell units; the product is four times as wide."""
    if dtype == torch.float32:
        return Tile(16, 16, 32, 4, 2) if rows <= 16 else Tile(64, 16, 32, 4, 2)
    if rows <= 16:
        return Tile(16, 32, 128, 4, 3)
    if rows <= 32:
        return Tile(32, 32, 64, 4, 4)
    if rows <= 64:
        return Tile(64, 32, 64, 4, 4)
    # Two programs share a multiprocessor: one multiplies while the other updates cells and writes them out.
    return Tile(128, 32, 64, 4, 3)


def cell_backward_tile(rows: int, dtype: torch.dtype) -> Tile:
    """Bound by memory (32 bytes a unit and step against a short sum over P): small tiles, many in flight."""
    if dtype == torch.float32:
        return Tile(16, 32, 32, 4, 2) if rows <= 16 else Tile(32, 32, 32, 4, 2)
    return Tile(16, 64, 64, 4, 3) if rows <= 16 else Tile(64, 32, 64, 4, 3)


def product_tile(rows: int, cols: int, directions: int, dtype: torch.dtype) -> Tile:
    """The largest tile of a (rows, long) x (long, cols) product that leaves a program for every multiprocessor."""
    if dtype == torch.float32:
        return Tile(16, 32, 32, 4, 2) if rows <= 16 else Tile(32, 64, 32, 4, 2)
    for tile in (Tile(128, 128, 64, 8, 4), Tile(128, 64, 64, 4, 4), Tile(64, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4)):
        if rows > tile.rows // 2 and directions * -(-rows // tile.rows) * -(-cols // tile.cols) >= PROGRAMS:
            return tile
    return Tile(32, 32, 128, 4, 4) if rows > 16 else Tile(16, 16, 128, 4, 4)


def pack_weights(weights: LstmWeights, dtype: torch.dtype, *, weave: bool, fold: bool) -> Tensor:
    """Both gate matrices side by side (R, 4H, D + P), or the recurrent one alone if not `fold`, in the compute type.

    Woven, row 16a + 8s + 2q + t holds gate 2s + t of unit 4a + q. A thread of the tensor core holds columns 8n + 2q and
    8n + 2q + 1 of the product: so all four gates of a unit meet in one thread.
    """
    parts = [weights.x, weights.h] if fold else [weights.h]
    R, width = parts[0].shape[:2]
    K = sum(part.shape[2] for part in parts)
    if not weave and not fold:
        return weights.h.to(dtype).contiguous()
    packed = torch.empty(R, width, K, dtype=dtype, device=weights.h.device)  # (R, 4H, K)
    at = 0
    for part in parts:
        k = part.shape[2]
        if weave:
            order = part.view(R, 2, 2, width // 16, 4, k).permute(0, 3, 1, 4, 2, 5)  # (R, H/4, s, q, t, k)
            packed.view(R, width // 16, 2, 4, 2, K)[..., at : at + k].copy_(order)
        else:
            packed[..., at : at + k].copy_(part)
        at += k
    return packed
