"""Losses and gradients of the output layers equal the plain formulas, and nothing of tokens x vocabulary is held."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from elmokit.errors import ConfigError
from elmokit.nn import softmax as module
from elmokit.nn.sampling import LogUniformSampler, Negatives
from elmokit.nn.softmax import AdaptiveSoftmax, Softmax, SoftmaxConfig, build_softmax

V, P, N = 40, 6, 23


def problem() -> tuple[Softmax, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    layer = Softmax(V, P).double()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(V, P, generator=source))
        layer.bias.copy_(torch.randn(V, generator=source))
    hidden = torch.randn(N, P, generator=source, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, V, (N,), generator=source)
    targets[:4] = 0  # a frequent word, hit by every draw
    return layer, hidden, targets


def plain_sampled(layer: Softmax, hidden: Tensor, targets: Tensor, negatives: Negatives) -> Tensor:
    """The textbook formula, all at once."""
    own = (hidden * layer.weight[targets]).sum(dim=1) + layer.bias[targets]
    if negatives.target_shift is not None:
        own = own + negatives.target_shift[targets]
    scores = hidden @ layer.weight[negatives.ids].T + layer.bias[negatives.ids] + negatives.shift  # (N, S)
    scores = scores.masked_fill(negatives.ids == targets[:, None], -torch.inf)
    return (torch.logsumexp(torch.cat([own[:, None], scores], dim=1), dim=1) - own).mean()


def gradients(loss: Tensor, layer: nn.Module, hidden: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(3 * loss, [hidden, *layer.parameters()]))  # any factor must pass through


@pytest.mark.parametrize("at_once", [2**25, 50])
@pytest.mark.parametrize("sampling", ["distinct", "repeated", "published"])
def test_sampled_loss_equals_the_plain_formula(sampling: Any, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once)
    layer, hidden, targets = problem()
    sampler = LogUniformSampler(V, 15, sampling=sampling)
    negatives = sampler.draw(torch.rand(sampler.noise(), generator=torch.Generator().manual_seed(3)))
    assert bool((negatives.ids == 0).any())  # accidental hits are there
    loss, want = layer.loss(hidden, targets, negatives), plain_sampled(layer, hidden, targets, negatives)
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(gradients(loss, layer, hidden), gradients(want, layer, hidden))


@pytest.mark.parametrize("at_once", [2**25, 100])
def test_full_loss_equals_cross_entropy(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES_AT_ONCE", at_once)
    layer, hidden, targets = problem()
    scores = hidden @ layer.weight.T + layer.bias
    loss, want = layer.loss(hidden, targets), nn.functional.cross_entropy(scores, targets)
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(gradients(loss, layer, hidden), gradients(want, layer, hidden))
    each = nn.functional.cross_entropy(scores, targets, reduction="none")
    torch.testing.assert_close(layer.nll(hidden, targets), each.detach().float(), check_dtype=False)
    picked = layer.log_probs(hidden).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(picked, -each.float())


def test_no_predictions_give_no_losses() -> None:
    layer, hidden, targets = problem()
    assert layer.nll(hidden[:0], targets[:0]).shape == (0,)


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.size = max([self.size, *(t.numel() for t in tree_flatten(out)[0] if isinstance(t, Tensor))])
        return out


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_nothing_of_tokens_times_vocabulary_is_held(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORES_AT_ONCE", 2000)
    vocabulary, n = 400, 900
    layer = Softmax(vocabulary, P)
    nn.init.normal_(layer.weight)
    hidden = torch.randn(n, P, requires_grad=True)
    targets = torch.randint(0, vocabulary, (n,))
    sampler = LogUniformSampler(vocabulary, 300)
    negatives = sampler.draw(torch.rand(1)) if kind == "sampled" else None
    with Largest() as seen:
        layer.loss(hidden, targets, negatives).backward()
        layer.nll(hidden.detach(), targets)
    assert seen.size <= n * P  # 5,400: the hidden vectors themselves; 360,000 would be all scores


def test_adaptive_loss_is_that_of_its_log_probabilities() -> None:
    layer = AdaptiveSoftmax(V, P, cutoffs=(8, 20, 4000))
    assert layer.cutoffs == (8, 20)
    hidden, targets = torch.randn(N, P), torch.arange(N) + 10
    logs = layer.log_probs(hidden)
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(N))
    each = -logs.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(layer.nll(hidden, targets), each)
    torch.testing.assert_close(layer.loss(hidden, targets), each.mean())


@pytest.mark.parametrize(("vocabulary", "width"), [(4, 2), (5000, 3), (30_000, 16)])
def test_adaptive_clusters_fit_any_size(vocabulary: int, width: int) -> None:
    layer = AdaptiveSoftmax(vocabulary, width, cutoffs=(4000, 20_000))
    logs = layer.log_probs(torch.randn(2, width))
    assert logs.shape == (2, vocabulary)
    torch.testing.assert_close(logs.exp().sum(dim=1), torch.ones(2))


def test_the_kind_is_chosen_by_the_configuration() -> None:
    assert isinstance(build_softmax(SoftmaxConfig("adaptive", cutoffs=(5,)), V, P), AdaptiveSoftmax)
    for kind in ("sampled", "full"):
        assert isinstance(build_softmax(SoftmaxConfig(kind), V, P), Softmax)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="softmax 'hierarchical' is not known"):
        SoftmaxConfig("hierarchical")  # type: ignore[arg-type]
