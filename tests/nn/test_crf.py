"""The CRF equals the enumeration of all paths."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.nn.crf import Allowed, Crf


def enumerated(crf: Crf, emissions: Tensor, length: int) -> dict[tuple[int, ...], float]:
    """The score of every allowed path of one sequence, written out."""
    scores = {}
    for path in itertools.product(range(crf.n_labels), repeat=length):
        steps = list(itertools.pairwise(path))
        if not crf.start_allowed[path[0]] or not crf.end_allowed[path[-1]]:
            continue
        if not all(crf.step_allowed[a, b] for a, b in steps):
            continue
        score = crf.start[path[0]] + crf.end[path[-1]] + sum(emissions[t, label] for t, label in enumerate(path))
        scores[path] = float((score + sum(crf.step[a, b] for a, b in steps)).detach())
    return scores


def build(seed: int, n_labels: int, *, barred: float) -> Crf:
    """Random scores; each start, step and end is forbidden with probability `barred`, but label 0 always goes."""
    torch.manual_seed(seed)
    allowed = Allowed(*(torch.rand(shape) >= barred for shape in (n_labels, (n_labels, n_labels), n_labels)))
    for part in (allowed.start, allowed.step[0], allowed.end):
        part[0] = True
    crf = Crf(n_labels, allowed=allowed).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


problems = st.tuples(
    st.integers(0, 10_000),
    st.integers(1, 4),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3, 0.6]),
)


@given(problem=problems)
def test_likelihood_and_best_path_equal_enumeration(problem: tuple[int, int, list[int], float]) -> None:
    seed, n_labels, lengths, barred = problem
    crf = build(seed, n_labels, barred=barred)
    T = max(lengths)
    emissions = 3 * torch.randn(len(lengths), T, n_labels, dtype=torch.float64)
    labels = torch.randint(n_labels, (len(lengths), T))
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    likelihood = crf.log_likelihood(emissions, labels, mask)
    best, score = crf.decode(emissions, mask)
    for k, n in enumerate(lengths):
        paths = enumerated(crf, emissions[k], n)
        total = torch.logsumexp(torch.tensor(list(paths.values()), dtype=torch.float64), dim=0)
        gold = tuple(labels[k, :n].tolist())
        expected = paths[gold] - total if gold in paths else torch.tensor(-torch.inf)
        torch.testing.assert_close(likelihood[k], torch.as_tensor(expected, dtype=torch.float64))
        winner = max(paths, key=lambda path: paths[path])
        assert tuple(best[k, :n].tolist()) == winner
        assert not best[k, n:].any()
        assert score[k].item() == pytest.approx(paths[winner])


@given(seed=st.integers(0, 10_000), lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_padding_and_batch_change_nothing(seed: int, lengths: list[int]) -> None:
    crf = build(seed, 3, barred=0.3)
    T = max(lengths) + 2
    emissions = torch.randn(len(lengths), T, 3, dtype=torch.float64)
    labels = torch.zeros(len(lengths), T, dtype=torch.long)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    together, (best, _) = crf.log_likelihood(emissions, labels, mask), crf.decode(emissions, mask)
    for k, n in enumerate(lengths):
        alone = crf.log_likelihood(emissions[k : k + 1, :n], labels[k : k + 1, :n], mask[k : k + 1, :n])
        torch.testing.assert_close(together[k], alone[0])
        assert best[k, :n].tolist() == crf.decode(emissions[k : k + 1, :n], mask[k : k + 1, :n])[0][0].tolist()
        if n == 0:
            assert together[k] == 0


def test_gradients_are_right_and_forbidden_scores_get_none() -> None:
    crf = build(3, 3, barred=0.4)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    emissions = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(2, 3, dtype=torch.long)
    torch.autograd.gradcheck(lambda e: crf.log_likelihood(e, labels, mask), (emissions,))
    crf.log_likelihood(emissions, labels, mask).sum().backward()
    assert not crf.step_allowed.all()
    assert crf.step.grad is not None
    assert torch.equal(crf.step.grad[~crf.step_allowed], torch.zeros(int((~crf.step_allowed).sum())).double())
    assert crf.step.grad[crf.step_allowed].abs().sum() > 0


def test_gradients_are_finite_where_a_label_cannot_be_reached() -> None:
    crf = Crf(2, allowed=Allowed(torch.tensor([True, False]), torch.eye(2, dtype=torch.bool), torch.ones(2).bool()))
    emissions = torch.zeros(1, 4, 2, requires_grad=True)
    likelihood = crf.log_likelihood(emissions, torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.bool))
    likelihood.sum().backward()
    assert likelihood.item() == pytest.approx(0, abs=1e-5)  # the only path there is
    assert emissions.grad is not None
    assert torch.isfinite(emissions.grad).all()


def test_allowed_of_another_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected those of 3 labels"):
        Crf(3, allowed=Allowed.everything(2))
