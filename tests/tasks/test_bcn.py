"""The biattentive network equals a plain loop over each sentence, and learns what its attention is for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.tasks.classify.network import Bcn, BcnConfig

CONFIG = BcnConfig(hidden=5, head_width=6, dropout=0.4)
LENGTHS = st.lists(st.integers(0, 7), min_size=1, max_size=5)


def network(config: BcnConfig = CONFIG, *, output_width: int = 3) -> Bcn:
    torch.manual_seed(0)
    made = Bcn(config, width=4, output_width=output_width, n_labels=3)
    made.train()
    for _ in range(3):  # the batch normalisation gathers statistics that are not 0 and 1
        made(torch.randn(6, 5, 4), torch.randn(6, 5, output_width), torch.ones(6, 5, dtype=torch.bool))
    return made.eval()


def batch(lengths: list[int], *, more: int = 0, output_width: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    rows = [(torch.randn(n, 4), torch.randn(n, output_width)) for n in lengths]
    T = max(lengths) + more
    words, above = torch.zeros(len(lengths), T, 4), torch.zeros(len(lengths), T, output_width)
    for k, (word, extra) in enumerate(rows):
        words[k, : len(word)], above[k, : len(word)] = word, extra
    return words, above, torch.arange(T) < torch.tensor(lengths)[:, None]


def by_hand(body: Bcn, words: Tensor, above: Tensor) -> Tensor:
    """One sentence (T, 4), word by word, as the paper's formulas have it."""
    x = body.encoder(torch.relu(body.feedforward(words))[None])[0][0]  # (T, 2 H)
    x = torch.cat([x, above], dim=-1)
    integrated = []
    for t in range(len(x)):
        weights = torch.tensor([float(x[t] @ x[s]) for s in range(len(x))]).softmax(0)
        around = sum(weights[s] * x[s] for s in range(len(x)))
        integrated.append(torch.cat([x[t], x[t] - around, x[t] * around]))
    pooled = []
    for side in body.integrators:
        y = side.lstm(torch.stack(integrated)[None])[0][0]  # type: ignore[operator]
        beta = torch.stack([side.attend(row)[0] for row in y]).softmax(0)  # type: ignore[operator]
        attended = sum(b * row for b, row in zip(beta, y, strict=True))
        pooled += [y.max(dim=0).values, y.mean(dim=0), y.min(dim=0).values, attended]
    return body.head(torch.cat(pooled)[None])[0]


@torch.no_grad()
@pytest.mark.parametrize("head", ["maxout", "relu"])
@pytest.mark.parametrize("output_width", [0, 3])
def test_it_is_what_the_formulas_say(head: str, output_width: int) -> None:
    body = network(BcnConfig(hidden=5, head_width=6, head=head), output_width=output_width)  # type: ignore[arg-type]
    lengths = [4, 1, 6]
    words, above, mask = batch(lengths, more=2, output_width=output_width)
    found = body(words, above, mask)
    for k, n in enumerate(lengths):
        torch.testing.assert_close(found[k], by_hand(body, words[k, :n], above[k, :n]))


@torch.no_grad()
@given(LENGTHS, st.integers(0, 4), st.integers(1, 2))
def test_padding_and_neighbours_change_nothing(lengths: list[int], more: int, integrators: int) -> None:
    body = network(BcnConfig(hidden=5, head_width=6, integrators=integrators))
    words, above, mask = batch(lengths, more=more)
    found = body(words, above, mask)
    assert torch.isfinite(found).all()
    for k, n in enumerate(lengths):
        alone = body(words[k : k + 1, :n], above[k : k + 1, :n], mask[k : k + 1, :n])
        torch.testing.assert_close(found[k], alone[0])


def test_a_maxout_unit_is_the_greatest_of_its_pieces() -> None:
    head = network().head
    head.dropout.p = 0.0  # type: ignore[union-attr, assignment]
    value = torch.randn(1, head.norms[0].num_features)  # type: ignore[union-attr, index]
    expected = value
    with torch.no_grad():
        for norm, layer in zip(head.norms, head.layers, strict=True):  # type: ignore[arg-type, union-attr]
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            normal = (expected - norm.running_mean) * scale + norm.bias
            wide = layer.weight @ normal[0] + layer.bias
            expected = torch.tensor([[max(wide[4 * j : 4 * j + 4].tolist()) for j in range(len(wide) // 4)]])
        torch.testing.assert_close(head(value), expected)


def test_a_batch_of_one_can_be_trained_on() -> None:
    body = network().train()
    body(*batch([3])).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in body.parameters())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="head is 'softmax'; expected maxout or relu"):
        BcnConfig(head="softmax")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="integrators is 3"):
        BcnConfig(integrators=3)
