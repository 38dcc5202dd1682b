"""The highway LSTM equals its equations written out word by word; padding and neighbours change nothing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.nn.highway_lstm import HighwayLstm, HighwayLstmConfig, HighwayLstmLayer


def build(seed: int = 0, **changes: float) -> HighwayLstm:
    torch.manual_seed(seed)
    config = HighwayLstmConfig(**{"width": 3, "hidden": 4, "n_layers": 3, "dropout": 0.0, **changes})  # type: ignore[arg-type]
    network = HighwayLstm(config).double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    return network


def mask_of(lengths: list[int], T: int) -> Tensor:
    return torch.arange(T) < torch.tensor(lengths)[:, None]


def by_hand(network: HighwayLstm, words: Tensor) -> Tensor:
    """One sentence (T, D), word by word and gate by gate."""
    H = network.config.hidden
    for k, layer in enumerate(network.layers):
        assert isinstance(layer, HighwayLstmLayer)
        h, c = torch.zeros(H).double(), torch.zeros(H).double()
        read = list(words) if k % 2 == 0 else list(words)[::-1]
        written = []
        for x in read:
            u, i, f, o, r = (layer.weight_x[: 5 * H] @ x + layer.weight_h @ h + layer.bias).split(H)
            c = i.sigmoid() * u.tanh() + f.sigmoid() * c
            r = r.sigmoid()
            h = r * o.sigmoid() * c.tanh() + (1 - r) * (layer.weight_x[5 * H :] @ x)
            written.append(h)
        words = torch.stack(written if k % 2 == 0 else written[::-1])
    return words


@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), extra=st.integers(0, 2))
def test_it_equals_the_equations_whatever_stands_beside_and_behind(seed: int, lengths: list[int], extra: int) -> None:
    network = build(seed)
    T = max(lengths) + extra
    values = 3 * torch.randn(len(lengths), T, 3, dtype=torch.float64)
    found = network(values, mask_of(lengths, T))
    for k, n in enumerate(lengths):
        torch.testing.assert_close(found[k, :n], by_hand(network, values[k, :n]))
        assert not found[k, n:].any()


def test_gradients_are_right() -> None:
    network = build(1)
    values = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    names, parameters = zip(*network.named_parameters(), strict=True)

    def run(values: Tensor, *weights: Tensor) -> Tensor:
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(network, given, (values, mask_of([4, 2], 4)))  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(run, (values, *parameters))


def test_gradients_are_right_under_dropout() -> None:
    network = build(2, dropout=0.5).train()
    values = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)

    def run(values: Tensor) -> Tensor:
        torch.manual_seed(5)
        return network(values, mask_of([3, 2], 3))  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(run, (values,))


def test_what_stands_behind_the_end_gets_no_gradient() -> None:
    network = build(3)
    values = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    network(values, mask_of([4, 2], 4)).sum().backward()
    assert values.grad is not None
    assert values.grad[0].abs().min() > 0
    assert not values.grad[1, 2:].any()


def test_dropout_is_the_same_at_every_word_and_rests_outside_training() -> None:
    network = build(4, n_layers=1, dropout=0.5)
    values, mask = torch.randn(3, 5, 3).double(), mask_of([5, 5, 5], 5)
    dropped = network.train()(values, mask) == 0  # (B, T, H)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0 < dropped.sum() < dropped.numel()
    assert not torch.equal(dropped[0], dropped[1])
    network.eval()
    torch.testing.assert_close(network(values, mask)[0], by_hand(network, values[0]))


def test_words_reach_the_top_of_a_new_network() -> None:
    torch.manual_seed(0)
    values, mask = torch.randn(8, 10, 40), mask_of([10] * 8, 10)
    reached = {}
    for bias in (-1.0, 0.0):
        network = HighwayLstm(HighwayLstmConfig(width=40, hidden=40, highway_bias=bias)).eval()
        found = network(values, mask).detach()
        reached[bias] = (found - found.mean(dim=(0, 1))).std().item() / values.std().item()
    assert reached[-1.0] > 0.05 > 2 * reached[0.0]


def test_no_words_at_all() -> None:
    assert build()(torch.zeros(2, 0, 3).double(), mask_of([0, 0], 0)).shape == (2, 0, 4)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected 1 or more"):
        HighwayLstmConfig(width=3, n_layers=0)
    with pytest.raises(ConfigError, match="dropout"):
        HighwayLstmConfig(width=3, dropout=1.0)
