"""Recurrent layers over padded batches: padding is never read, and a sentence without words is no error."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


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
