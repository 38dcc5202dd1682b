"""Padded batches of sentences: recurrent layers, dropout, attention and pooling that never read padding.

Masks are True at real positions. A sentence without words attends to nothing and is pooled to zeros.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SCORES = 1 << 24  # of pairs of words, held at once where no gradient is needed


def run_recurrent(layer: nn.LSTM | nn.GRU, x: Tensor, lengths: Tensor) -> Tensor:
    """The outputs of a `batch_first` LSTM or GRU, zero at padding. (B, T, D) to (B, T, H or 2 H)"""
    if not x.shape[0] or not x.shape[1]:
        return x.new_zeros(*x.shape[:2], layer.hidden_size * (2 if layer.bidirectional else 1))
    lengths = lengths.cpu()  # (B,)
    # A row of no words reads one position, which is thrown away again: packing knows no empty rows.
    packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
    padded, _ = pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=x.shape[1])
    return padded * (lengths > 0).to(padded)[:, None, None]


class SharedDropout(nn.Module):
    """Dropout with one mask for all words of a sentence (Gal and Ghahramani 2016)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)"""
        if not self.training or not self.rate:
            return values
        kept = nn.functional.dropout(torch.ones_like(values[:, :1]), self.rate)  # (B, 1, D)
        return values * kept


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of what is real; zeros where masked, and everywhere in a row that is all masked."""
    hidden = torch.finfo(scores.dtype).min  # not -inf: a row of nothing but -inf would be NaN, and its gradient too
    return torch.softmax(scores.masked_fill(~mask, hidden), dim=-1) * mask


def align(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """For each query the mean of `values` weighed by the softmax of its scores.

    `scores` (B, S, T), `values` (B, T, D), `mask` (B, T) of the values. Gives (B, S, D).
    """
    return masked_softmax(scores, mask[:, None]) @ values  # (B, S, D)


def attend(words: Tensor, mask: Tensor) -> Tensor:
    """For each word the mean of all words of its text, weighed by the softmax of their products with it.

    `words` (B, T, D), `mask` (B, T). Gives (B, T, D). Where no gradient is needed, long texts take little memory.
    """
    B, T, _ = words.shape
    rows = max(T, 1) if torch.is_grad_enabled() else max(1, SCORES // max(B * T, 1))
    keys = words.transpose(1, 2)  # (B, D, T)
    parts = [align(some @ keys, words, mask) for some in torch.split(words, rows, dim=1)]  # (B, rows, D) each
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


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
