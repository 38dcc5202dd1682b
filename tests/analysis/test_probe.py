"""The probe finds the optimum that scikit-learn finds, whatever the scale of the features."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from elmokit.analysis import probe as module
from elmokit.analysis.probe import ProbeConfig, fit_probe
from elmokit.errors import InputError


def clouds(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping clouds in five dimensions of very different scales, and one dimension that says nothing."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    features = rng.normal(size=(n, 5)) + np.eye(3, 5)[labels] * 2
    features = features * [1, 10, 0.01, 1, 100] + [0, 5, 0, -3, 7]
    return np.column_stack([features, np.full(n, 0.5)]).astype(np.float32), labels


CPU = ProbeConfig(l2=1e-3, iterations=300, tolerance=1e-7, device="cpu")


def test_weights_equal_those_of_scikit_learn() -> None:
    features, labels = clouds()
    probe = fit_probe(features, labels, 3, config=CPU)
    spread = features.std(axis=0)
    standard = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    # its objective is C * summed loss + |w|^2 / 2, ours mean loss + l2 * |w|^2
    other = LogisticRegression(C=1 / (2 * CPU.l2 * len(labels)), max_iter=5000, tol=1e-10).fit(standard, labels)
    np.testing.assert_allclose(probe.weight.numpy(), other.coef_, atol=2e-3)
    np.testing.assert_allclose(np.exp(probe.scores(features).numpy()), other.predict_proba(standard), atol=1e-3)
    held_features, held_labels = clouds(seed=1)
    assert 0.6 < probe.accuracy(held_features, held_labels) < 1
    assert probe.accuracy(held_features, held_labels) == (probe.predict(held_features) == held_labels).mean()


def test_parts_and_float16_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clouds()
    whole = fit_probe(features, labels, 3, config=CPU)
    monkeypatch.setattr(module, "ROWS", 77)
    np.testing.assert_allclose(fit_probe(features, labels, 3, config=CPU).weight, whole.weight, atol=1e-3)
    half = fit_probe(features.astype(np.float16), labels, 3, config=CPU)
    assert (half.predict(features) == whole.predict(features)).mean() > 0.98
    tensor = fit_probe(torch.from_numpy(features), labels, 3, config=CPU)
    np.testing.assert_allclose(tensor.weight, whole.weight, atol=1e-3)
    assert (tensor.predict(torch.from_numpy(features)) == tensor.predict(features)).all()


def test_a_class_never_seen_is_never_predicted() -> None:
    features, labels = clouds()
    probe = fit_probe(features, labels, 5, config=CPU)
    assert probe.scores(features).shape == (300, 5)
    assert set(probe.predict(features)) == {0, 1, 2}
    assert probe.predict(features[:0]).shape == (0,)


def test_progress_is_told_and_the_loss_falls() -> None:
    features, labels = clouds()
    heard: list[tuple[int, float]] = []
    fit_probe(features, labels, 3, config=CPU, told=lambda *news: heard.append(news))
    assert [k for k, _ in heard] == list(range(1, len(heard) + 1))
    assert heard[0][1] == pytest.approx(np.log(3), abs=1e-6)
    assert heard[-1][1] < 0.7 * heard[0][1]


def test_what_does_not_fit_is_refused() -> None:
    features, labels = clouds()
    with pytest.raises(InputError, match="expected a row for each label"):
        fit_probe(features[:-1], labels, 3)
    with pytest.raises(InputError, match="classes from 0 to 2, expected 0 to 1"):
        fit_probe(features, labels, 2)
