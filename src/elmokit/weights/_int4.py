"""Matrices as four bits: groups of 64 numbers along the input, each with a scale of 16 bits.

A number is a whole one from -7 to 7 times its group's scale. Two stand in a byte, each with 8 added: the first of a
pair in the low four bits. The scale is the one of several, from the group's largest number down to 0.7 of it, that
leaves the least squared error: cutting off the few largest can make all the others finer.
"""

import torch
from torch import Tensor

from elmokit.kernels.cpu.int8 import Int8Matrix, quantise

GROUP = 64
STEPS, OFFSET = 7, 8
CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
PIECE = 1024  # rows at a time: nothing as large as the whole matrix is made


def fits(values: Tensor) -> bool:
    """Whether a tensor's last axis falls into whole groups."""
    return values.ndim > 1 and values.shape[-1] % GROUP == 0


def quantise_groups(values: Tensor) -> tuple[Tensor, Tensor]:
    """Floats (..., K) to bytes (..., K / 2) and scales (..., K / 64)."""
    rows = values.reshape(-1, values.shape[-1])
    packed = torch.empty(len(rows), rows.shape[1] // 2, dtype=torch.uint8)
    scales = torch.empty(len(rows), rows.shape[1] // GROUP, dtype=torch.float16)
    for k in range(0, len(rows), PIECE):
        some = slice(k, k + PIECE)
        whole, scales[some] = _rounded(rows[some].float().reshape(-1, scales.shape[1], GROUP))
        pairs = (whole + OFFSET).to(torch.uint8).view(len(whole), -1, 2)  # (n, K / 2, 2)
        packed[some] = pairs[..., 0] | (pairs[..., 1] << 4)
    leading = values.shape[:-1]
    return packed.view(*leading, -1), scales.view(*leading, -1)


def _rounded(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Groups (n, G, 64) to whole numbers and their scales (n, G): the best of the clips for each group."""
    largest = groups.abs().amax(dim=-1)  # (n, G)
    least = torch.full_like(largest, torch.inf)
    best, scale = torch.zeros_like(groups), torch.ones_like(largest, dtype=torch.float16)
    for clip in CLIPS:
        tried = torch.where(largest > 0, largest * clip / STEPS, 1.0).to(torch.float16).clamp(min=1e-7)
        whole = (groups / tried.float()[..., None]).round_().clamp_(-STEPS, STEPS)
        error = (whole * tried.float()[..., None] - groups).square_().sum(dim=-1)
        better = error < least
        least = torch.where(better, error, least)
        scale = torch.where(better, tried, scale)
        best = torch.where(better[..., None], whole, best)
    return best, scale


def widen_groups(packed: Tensor, scale: Tensor) -> Tensor:
    """Bytes (..., K / 2) and scales (..., K / 64) to float32 (..., K)."""
    pairs = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)  # (..., K)
    whole = pairs.to(torch.float32).sub_(OFFSET)
    return whole.view(*scale.shape, GROUP).mul_(scale.float()[..., None]).flatten(-2)


def as_int8(packed: Tensor, scale: Tensor) -> Int8Matrix:
    """The same as int8 with one scale for each row, which moves a number by at most half of an int8 step."""
    rows, scales = packed.flatten(0, -2), scale.flatten(0, -2)
    values = torch.empty(len(rows), 2 * rows.shape[1], dtype=torch.int8)
    factors = torch.empty(len(rows))
    for k in range(0, len(rows), PIECE):
        some = slice(k, k + PIECE)
        values[some], factors[some] = quantise(widen_groups(rows[some], scales[some]))
    leading = packed.shape[:-1]
    return Int8Matrix(values.view(*leading, -1), factors.view(leading))
