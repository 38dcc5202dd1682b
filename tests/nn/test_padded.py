"""Recurrent layers, attention and pooling equal plain loops over each sentence, whatever its padding holds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from elmokit.nn import padded as padding
from elmokit.nn.padded import (
    SharedDropout,
    align,
    attend,
    masked_softmax,
    pool_max,
    pool_mean,
    pool_min,
    run_recurrent,
)

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=5)


def padded(lengths: list[int], width: int, *, seed: int, more: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random numbers everywhere, padding included, and the mask."""
    torch.manual_seed(seed)
    T = max(lengths) + more
    return 3 * torch.randn(len(lengths), T, width), torch.arange(T) < torch.tensor(lengths)[:, None]


@given(LENGTHS, st.integers(0, 3))
def test_attention_is_a_weighed_mean_of_the_real_words(lengths: list[int], more: int) -> None:
    values, mask = padded(lengths, 4, seed=1, more=more)
    scores = 5 * torch.randn(len(lengths), 3, values.shape[1])
    found = align(scores, values, mask)
    for row, n in enumerate(lengths):
        for query in range(3):
            raised = [float(scores[row, query, t].double().exp()) for t in range(n)]
            expected = torch.zeros(4, dtype=torch.double)
            for t in range(n):
                expected += raised[t] / sum(raised) * values[row, t].double()
            torch.testing.assert_close(found[row, query].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_text_attends_to_itself_in_any_number_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    words, mask = torch.randn(2, 7, 3), torch.arange(7) < torch.tensor([[7], [4]])
    whole = attend(words, mask)
    torch.testing.assert_close(whole, align(words @ words.transpose(1, 2), words, mask))
    monkeypatch.setattr(padding, "SCORES", 40)
    held: list[int] = []
    monkeypatch.setattr(padding, "align", lambda scores, *rest: held.append(scores.numel()) or align(scores, *rest))
    with torch.no_grad():
        torch.testing.assert_close(attend(words, mask), whole)
    assert len(held) > 1
    assert max(held) <= 40
    assert attend(words[:, :0], mask[:, :0]).shape == (2, 0, 3)


@given(LENGTHS, st.integers(0, 3))
def test_pooling_sees_the_real_words_alone(lengths: list[int], more: int) -> None:
    values, mask = padded(lengths, 4, seed=2, more=more)
    found = {"mean": pool_mean(values, mask), "max": pool_max(values, mask), "min": pool_min(values, mask)}
    for row, n in enumerate(lengths):
        for d in range(4):
            column = values[row, :n, d].tolist()
            assert abs(float(found["mean"][row, d]) - (sum(column) / n if n else 0)) < 1e-5
            assert float(found["max"][row, d]) == max(column, default=0)
            assert float(found["min"][row, d]) == min(column, default=0)


def test_a_row_without_words_has_no_weights_and_clean_gradients() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[True, True, False], [False, False, False]]))
    assert weights[0].sum().item() == pytest.approx(1)
    assert weights[0, 2] == 0
    assert not weights[1].any()
    weights.square().sum().backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_a_score_that_is_very_low_still_counts_where_it_is_the_only_one() -> None:
    weights = masked_softmax(torch.tensor([[-1e30, 5.0]]), torch.tensor([[True, False]]))
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0.0]]))


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


def test_shared_dropout_drops_the_same_numbers_of_all_words() -> None:
    values, dropout = torch.rand(4, 5, 30) + 1, SharedDropout(0.4)
    dropped = dropout(values)
    ratio = dropped / values  # (B, T, D)
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
    kept = ratio[:, 0][ratio[:, 0] > 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.6))
    assert 0.3 < (ratio[:, 0] == 0).float().mean() < 0.5
    assert dropout.eval()(values) is values
