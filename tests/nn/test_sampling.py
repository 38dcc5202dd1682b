"""The sampled softmax is an honest estimate of the full one, whichever way its negatives are drawn."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.nn.sampling import LogUniformSampler, Negatives, Sampling
from elmokit.nn.softmax import Softmax

WIDTH = 8


def softmax_of(vocabulary: int, *, seed: int = 0) -> Softmax:
    """Random weights; frequent words, at the front, get a higher score, as in a trained model."""
    source = torch.Generator().manual_seed(seed)
    layer = Softmax(vocabulary, WIDTH).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(vocabulary, WIDTH, generator=source) * 0.3)
        layer.bias.copy_(-torch.arange(1, vocabulary + 1).log() + 0.3 * torch.randn(vocabulary, generator=source))
    return layer


def positions(n: int, layer: Softmax, *, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Targets that are log-uniform as words are, and hidden vectors that point to them as far as a model knows."""
    source, vocabulary = torch.Generator().manual_seed(seed), len(layer.bias)
    ranks = torch.exp(torch.rand(n, generator=source) * np.log(vocabulary)) - 1
    targets = ranks.long().clamp(max=vocabulary - 1)
    known = torch.nn.functional.normalize(layer.weight.detach()[targets], dim=1)  # (N, P)
    return 2 * known + 0.5 * torch.randn(n, WIDTH, generator=source, dtype=torch.float64), targets


def partition(layer: Softmax, hidden: Tensor, target: int, negatives: Negatives) -> float:
    """The partition sum that the loss of one position used."""
    own = float((hidden @ layer.weight[target] + layer.bias[target]).detach())
    loss = layer.loss(hidden[None], torch.tensor([target]), negatives)
    return float(torch.exp(loss.detach() + own))


def combs(sampler: LogUniformSampler) -> Iterator[tuple[float, float]]:
    """Systematic sampling has one random number, and the draw changes at finitely many places: (number, weight)."""
    edges = np.unique(np.concatenate([[0.0, 1.0], sampler.cumulative.numpy() % 1.0]))
    for left, right in itertools.pairwise(edges.tolist()):
        yield (left + right) / 2, right - left


@pytest.mark.parametrize("target", [0, 1, 7, 59])
def test_distinct_expects_the_full_partition_sum(target: int) -> None:
    layer, sampler = softmax_of(60), LogUniformSampler(60, 12)
    (hidden,), _ = positions(1, layer)
    full = float(torch.exp(hidden @ layer.weight.T + layer.bias).sum().detach())
    found = [
        (partition(layer, hidden, target, sampler.draw(torch.tensor([u], dtype=torch.float64))), share)
        for u, share in combs(sampler)
    ]
    assert sum(share for _, share in found) == pytest.approx(1.0)
    assert sum(z * share for z, share in found) == pytest.approx(full, rel=1e-6)  # the shifts are float32
    assert max(z for z, _ in found) > 1.02 * full  # single draws do differ


@pytest.mark.parametrize("target", [0, 1, 59])
def test_repeated_expects_the_full_partition_sum(target: int) -> None:
    layer, sampler = softmax_of(60), LogUniformSampler(60, 40, sampling="repeated")
    (hidden,), _ = positions(1, layer)
    full = float(torch.exp(hidden @ layer.weight.T + layer.bias).sum().detach())
    source = torch.Generator().manual_seed(5)
    found = torch.tensor(
        [
            partition(layer, hidden, target, sampler.draw(torch.rand(40, generator=source, dtype=torch.float64)))
            for _ in range(1500)
        ]
    )
    error = float(found.std()) / len(found) ** 0.5
    assert error < 0.01 * full
    assert abs(float(found.mean()) - full) < 4 * error


def test_every_word_is_included_as_often_as_it_is_said_to_be() -> None:
    sampler = LogUniformSampler(50, 20)
    seen = torch.zeros(50, dtype=torch.float64)
    for u, share in combs(sampler):
        ids = sampler.draw(torch.tensor([u], dtype=torch.float64)).ids
        assert len(ids.unique()) == 20
        seen[ids] += share
    torch.testing.assert_close(seen, (-sampler.shift.double()).exp(), rtol=1e-5, atol=0)
    assert bool((seen.diff() < 1e-7).all())  # frequent words more often
    repeated = LogUniformSampler(50, 20, sampling="repeated")
    expected = (-repeated.shift.double()).exp()  # S * q
    assert float(expected.sum()) == pytest.approx(20, rel=1e-5)
    drawn = repeated.draw(torch.rand(20_000, generator=torch.Generator().manual_seed(2))).ids
    torch.testing.assert_close(
        torch.bincount(drawn, minlength=50) / 1000, expected, rtol=0, atol=0.2, check_dtype=False
    )


def expected_gradient(layer: Softmax, hidden: Tensor, targets: Tensor, draws: Iterator[Negatives]) -> Tensor:
    """The mean gradient over draws: of hidden vectors, weights and biases, one after the other."""
    h = hidden.clone().requires_grad_()
    layer.zero_grad()
    n = 0
    for negatives in draws:
        layer.loss(h, targets, negatives).backward()
        n += 1
    return flat(layer, h) / n


def flat(layer: Softmax, hidden: Tensor) -> Tensor:
    parts = (hidden.grad, layer.weight.grad, layer.bias.grad)
    return torch.cat([part.flatten() for part in parts if part is not None])


def full_gradient(layer: Softmax, hidden: Tensor, targets: Tensor) -> Tensor:
    h = hidden.clone().requires_grad_()
    layer.zero_grad()
    torch.nn.functional.cross_entropy(h @ layer.weight.T + layer.bias, targets).backward()
    return flat(layer, h)


def draws_of(sampler: LogUniformSampler, n: int) -> Iterator[Negatives]:
    """A fine grid for the one number of a comb; random numbers otherwise."""
    if sampler.sampling == "repeated":
        source = torch.Generator().manual_seed(9)
        yield from (sampler.draw(torch.rand(sampler.samples, generator=source, dtype=torch.float64)) for _ in range(n))
    else:
        yield from (sampler.draw(torch.tensor([(k + 0.5) / n], dtype=torch.float64)) for k in range(n))


def bias_of(sampling: Sampling, samples: int, *, draws: int, trap: bool = False) -> float:
    """How far the expected gradient is from the full softmax's, relative to it, over a vocabulary of 1,500."""
    layer, sampler = softmax_of(1500), LogUniformSampler(1500, samples, sampling=sampling)
    hidden, targets = positions(16, layer)
    found: Iterator[Negatives] = draws_of(sampler, draws)
    if trap:
        found = (negatives._replace(target_shift=sampler.shift) for negatives in found)
    exact = full_gradient(layer, hidden, targets)
    return float((expected_gradient(layer, hidden, targets, found) - exact).norm() / exact.norm())


def test_the_gradient_bias_of_distinct_shrinks_below_a_percent() -> None:
    biases = [bias_of("distinct", samples, draws=150) for samples in (32, 256, 1024)]
    assert biases[0] > biases[1] > biases[2]
    assert biases[2] < 0.01


def test_the_gradient_bias_of_repeated_shrinks_below_a_percent() -> None:
    biases = [bias_of("repeated", samples, draws=400) for samples in (32, 256, 1024)]
    assert biases[0] > biases[1] > biases[2]
    assert biases[2] < 0.01


def test_correcting_the_target_by_its_expected_count_is_caught() -> None:
    """The trap: drawn with replacement, the target's own score left alone is right and corrected is wrong."""
    assert bias_of("repeated", 1024, draws=100, trap=True) > 0.1
    layer, sampler = softmax_of(1500), LogUniformSampler(1500, 1024, sampling="repeated")
    (hidden,), _ = positions(1, layer)
    right = next(draws_of(sampler, 1))
    wrong = right._replace(target_shift=sampler.shift)
    frequent = torch.tensor([0])
    full = layer.loss(hidden[None], frequent)
    assert abs(float((layer.loss(hidden[None], frequent, right) - full).detach())) < 0.1
    assert float((layer.loss(hidden[None], frequent, wrong) - full).detach()) > 2


def test_published_corrects_target_and_negatives_alike() -> None:
    sampler, distinct = LogUniformSampler(60, 12, sampling="published"), LogUniformSampler(60, 12)
    uniform = torch.tensor([0.37], dtype=torch.float64)
    negatives = sampler.draw(uniform)
    assert torch.equal(negatives.ids, distinct.draw(uniform).ids)
    assert negatives.target_shift is not None
    assert torch.equal(negatives.shift, negatives.target_shift[negatives.ids])
    layer = softmax_of(60)
    hidden, targets = positions(5, layer)
    scores = hidden @ layer.weight.T + layer.bias - sampler.shift.neg()  # (N, V) lowered by log pi
    for k, target in enumerate(targets.tolist()):
        among = [target, *(w for w in negatives.ids.tolist() if w != target)]
        want = torch.logsumexp(scores[k, among], dim=0) - scores[k, target]
        torch.testing.assert_close(layer.loss(hidden[k : k + 1], targets[k : k + 1], negatives), want)


def test_the_ends_of_the_interval_stay_inside() -> None:
    for sampling in ("distinct", "repeated", "published"):
        sampler = LogUniformSampler(1000, 999, sampling=sampling)
        for u in (0.0, float(np.nextafter(np.float32(1), np.float32(0)))):
            ids = sampler.draw(torch.full(sampler.noise(), u)).ids
            assert int(ids.min()) >= 0
            assert int(ids.max()) < 1000
            # A comb that begins on a border between two words may take one of them twice, as its CPU rounds.
            assert sampling == "repeated" or len(ids.unique()) >= 998


def test_impossible_samplers_are_refused() -> None:
    with pytest.raises(ConfigError, match="50 negatives cannot be drawn from 50 words"):
        LogUniformSampler(50, 50)
    with pytest.raises(ConfigError, match="'uniform' is not known"):
        LogUniformSampler(50, 5, sampling="uniform")  # type: ignore[arg-type]
