"""ESIM equals a plain loop over each pair; padding, neighbours and the other side's padding change nothing."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.tasks.entail.task import Esim, EsimConfig, SharedDropout
from elmokit.tasks.words import Side

LENGTHS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4)


def network(output_width: int = 3) -> Esim:
    torch.manual_seed(0)
    return Esim(EsimConfig(hidden=5), width=4, output_width=output_width, n_labels=3).eval()


def side(lengths: list[int], *, seed: int, more: int, output_width: int = 3) -> Side:
    torch.manual_seed(seed)
    T = max(lengths) + more
    words, above = torch.zeros(len(lengths), T, 4), torch.zeros(len(lengths), T, output_width)
    for k, n in enumerate(lengths):
        words[k, :n], above[k, :n] = torch.randn(n, 4), torch.randn(n, output_width)
    return Side(words, above, torch.arange(T) < torch.tensor(lengths)[:, None])


def row(given: Side, k: int, n: int) -> Side:
    return Side(given.vectors[k : k + 1, :n], given.at_output[k : k + 1, :n], given.mask[k : k + 1, :n])


def by_hand(body: Esim, premise: Side, hypothesis: Side) -> Tensor:
    """One pair without padding, word by word, as the paper's formulas have it."""
    a, b = (torch.cat([body.encoder(s.vectors)[0], s.at_output], dim=-1)[0] for s in (premise, hypothesis))
    pooled = []
    for own, other in ((a, b), (b, a)):
        rows = []
        for x in own:
            weights = torch.tensor([float(x @ y) for y in other]).softmax(0)
            aligned = sum(w * y for w, y in zip(weights, other, strict=True))
            rows.append(torch.relu(body.projection(torch.cat([x, aligned, x - aligned, x * aligned]))))
        v = body.composition(torch.stack(rows)[None])[0][0]  # (T, 2 H)
        pooled += [v.mean(dim=0), v.max(dim=0).values]
    return body.classifier(torch.cat(pooled))


@torch.no_grad()
def test_it_is_what_the_formulas_say() -> None:
    for output_width in (0, 3):
        body = network(output_width)
        pairs = [(3, 5), (1, 1), (6, 2)]
        a = side([n for n, _ in pairs], seed=1, more=1, output_width=output_width)
        b = side([n for _, n in pairs], seed=2, more=3, output_width=output_width)
        found = body(a, b)
        for k, (n, m) in enumerate(pairs):
            torch.testing.assert_close(found[k], by_hand(body, row(a, k, n), row(b, k, m)))


@torch.no_grad()
@given(LENGTHS, st.integers(0, 3), st.integers(0, 3))
def test_padding_and_neighbours_change_nothing(pairs: list[tuple[int, int]], more: int, more_too: int) -> None:
    body = network()
    a, b = side([n for n, _ in pairs], seed=1, more=more), side([m for _, m in pairs], seed=2, more=more_too)
    found = body(a, b)
    assert torch.isfinite(found).all()
    for k, (n, m) in enumerate(pairs):
        torch.testing.assert_close(found[k], body(row(a, k, n), row(b, k, m))[0])


def test_shared_dropout_drops_the_same_numbers_of_every_word() -> None:
    torch.manual_seed(0)
    dropout = SharedDropout(0.5)
    dropped = dropout(torch.ones(20, 7, 10))
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert (dropped == dropped[:, :1]).all()
    assert not (dropped[:1] == dropped).all()
    assert (dropout.eval()(torch.ones(2, 3, 4)) == 1).all()
