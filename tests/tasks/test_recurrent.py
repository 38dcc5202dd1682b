"""Recurrent layers over padded batches."""

import pytest
import torch
from torch import nn

from elmokit.tasks.recurrent import run_recurrent


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4, batch_first=True, bidirectional=True), nn.GRU(3, 8, batch_first=True)])
def test_padding_is_not_read(layer: nn.LSTM | nn.GRU) -> None:
    x = torch.randn(3, 5, 3)
    lengths = torch.tensor([5, 0, 2])
    found = run_recurrent(layer, x, lengths)
    assert found.shape == (3, 5, 8)
    assert not found[1].any()
    assert not found[2, 2:].any()
    torch.testing.assert_close(found[2, :2], layer(x[2:, :2])[0][0])
    assert run_recurrent(layer, x[:, :0], torch.zeros(3, dtype=torch.long)).shape == (3, 0, 8)
