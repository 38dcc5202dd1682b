"""The probe on a mix is the layer's own probe where one layer has all the weight, and finds where the labels stand."""

import numpy as np
import pytest

from elmokit.analysis import probe as module
from elmokit.analysis.probe import ProbeConfig, fit_mixed_probe, fit_probe

CPU = ProbeConfig(iterations=200, device="cpu")


def layers(n: int = 400, seed: int = 0, *, loud: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Three layers of four features; the middle one holds the label, the last is noise, as loud as asked for."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    values = rng.normal(size=(n, 3, 4))
    values[:, 1] += np.eye(3, 4)[labels] * 2.5
    values[:, 2] = values[:, 2] * loud + 3
    return values.astype(np.float32), labels


@pytest.mark.parametrize("loud", [1.0, 100.0])
def test_the_layer_that_knows_gets_the_weight_however_loud_the_others(loud: float) -> None:
    values, labels = layers(loud=loud)
    held, wanted = layers(seed=1, loud=loud)
    mixed = fit_mixed_probe(values, labels, 3, config=CPU)
    assert float(mixed.shares.sum()) == pytest.approx(1, abs=1e-5)
    assert float(mixed.shares[1]) > 0.8
    alone = fit_probe(values[:, 1], labels, 3, config=CPU)
    assert mixed.accuracy(held, wanted) == pytest.approx(alone.accuracy(held[:, 1], wanted), abs=0.03)


def test_one_layer_alone_is_the_plain_probe() -> None:
    values, labels = layers()
    mixed = fit_mixed_probe(values[:, 1:2], labels, 3, config=CPU)
    plain = fit_probe(values[:, 1], labels, 3, config=CPU)
    np.testing.assert_allclose(mixed.weight, plain.weight, atol=2e-3)
    np.testing.assert_array_equal(mixed.predict(values[:, 1:2]), plain.predict(values[:, 1]))
    assert mixed.predict(values[:0, 1:2]).shape == (0,)


def test_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values, labels = layers()
    whole = fit_mixed_probe(values, labels, 3, config=CPU)
    monkeypatch.setattr(module, "ROWS", 200)
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    np.testing.assert_allclose(fit_mixed_probe(values, labels, 3, config=CPU).shares, whole.shares, atol=0.02)
