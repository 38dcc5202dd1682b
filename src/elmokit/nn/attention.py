"""Attention and pooling over sentences of different lengths: what stands behind a sentence's end has no part in them.

Masks are True at real positions. A sentence without words attends to nothing and is pooled to zeros.
"""

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of what is real; zeros where masked, and everywhere in a row that is all masked."""
    hidden = torch.finfo(scores.dtype).min  # not -inf: a row of nothing but -inf would be NaN, and its gradient too
    return torch.softmax(scores.masked_fill(~mask, hidden), dim=-1) * mask


def align(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """For each query the mean of `values` weighed by the softmax of its scores.

    `scores` (B, S, T), `values` (B, T, D), `mask` (B, T) of the values. Gives (B, S, D).
    """
    return masked_softmax(scores, mask[:, None]) @ values  # (B, S, D)


def pool_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the real positions. (B, T, D) and (B, T) to (B, D)"""
    return (values * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def pool_max(values: Tensor, mask: Tensor) -> Tensor:
    """The greatest of the real positions, number by number. (B, T, D) and (B, T) to (B, D)"""
    if not values.shape[1]:
        return values.new_zeros(len(values), values.shape[-1])
    lowest = torch.finfo(values.dtype).min
    highest = values.masked_fill(~mask[..., None], lowest).amax(dim=1)  # (B, D)
    return highest * mask.any(dim=1, keepdim=True)


def pool_min(values: Tensor, mask: Tensor) -> Tensor:
    """The least of the real positions, number by number. (B, T, D) and (B, T) to (B, D)"""
    return -pool_max(-values, mask)
