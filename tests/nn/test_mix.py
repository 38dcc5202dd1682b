"""The scalar mix in all its variants equals the float64 reference."""

import numpy as np
import pytest
import torch

import models
import reference
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerStack
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence

SENTENCES = [["The", "cat", "sat", "."], ["a"], ["The", "mat", "on", "the", "mat"]]
WEIGHTS = (0.4, -1.0, 0.2)


@pytest.fixture(scope="module")
def stack() -> LayerStack:
    return Elmo(models.tiny().pretrained, device="cpu", dtype="float64").run([Sentence.of(s) for s in SENTENCES])


@pytest.fixture(scope="module")
def stacks() -> list[reference.Array]:
    tiny = models.tiny()
    return [reference.embed(tiny.weights, tiny.options, s)[0] for s in SENTENCES]


@pytest.mark.parametrize(
    ("layer_norm", "epsilon", "norm"),
    [
        ("none", 1e-12, None),
        ("allennlp", 1e-12, "allennlp"),
        ("allennlp", 1e-13, "allennlp-1.0"),
        ("bilm", 1e-12, "bilm-tf"),
    ],
)
def test_mix_equals_the_reference(
    stack: LayerStack, stacks: list[reference.Array], layer_norm: str, epsilon: float, norm: str | None
) -> None:
    config = MixConfig(weights=WEIGHTS, gamma=1.7, layer_norm=layer_norm, epsilon=epsilon)  # type: ignore[arg-type]
    got = ScalarMix(config).double()(stack).detach().numpy()
    want = [reference.drop_boundaries(m) for m in reference.mix(stacks, WEIGHTS, 1.7, norm=norm)]
    assert got.shape == (3, 5, 12)
    for row, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-6)  # the weights are kept in float32
        assert not row[len(expected) :].any(), "padding stays zero"


def test_the_two_norms_differ_by_the_boundaries(stack: LayerStack) -> None:
    ours, theirs = (ScalarMix(MixConfig(layer_norm=n)).double()(stack) for n in ("allennlp", "bilm"))  # type: ignore[arg-type]
    assert (ours - theirs).abs().max() > 1e-3


def test_untrained_it_is_the_average(stack: LayerStack, stacks: list[reference.Array]) -> None:
    got = ScalarMix().double()(stack)
    for row, want in zip(got, reference.average(stacks), strict=True):
        inner = reference.drop_boundaries(want)
        np.testing.assert_allclose(row[: len(inner)].detach(), inner, atol=1e-7)


def test_dropout_in_training_only(stack: LayerStack) -> None:
    mix = ScalarMix(MixConfig(dropout=0.5)).double()
    torch.manual_seed(0)
    dropped = mix(stack)[0]
    assert 0.2 < (dropped == 0).double().mean() < 0.8
    kept = mix.eval()(stack)[0]
    assert (kept == 0).double().mean() < 0.4
    nonzero = dropped != 0
    torch.testing.assert_close(dropped[nonzero], 2 * kept[nonzero])


def test_penalty_is_on_the_raw_weights() -> None:
    assert ScalarMix(MixConfig(weights=(1.0, 2.0, 3.0), l2=0.1)).penalty().item() == pytest.approx(1.4, rel=1e-5)


def test_fixed_weights_do_not_train(stack: LayerStack) -> None:
    assert not any(p.requires_grad for p in ScalarMix(MixConfig(trainable=False)).parameters())
    mix = ScalarMix().double()
    mix(stack).square().sum().backward()
    assert mix.weights.grad is not None
    assert mix.weights.grad.abs().max() > 0


def test_what_does_not_fit_is_refused(stack: LayerStack) -> None:
    with pytest.raises(ConfigError, match="2 mix weights given for 3 layers"):
        MixConfig(weights=(1.0, 2.0))
    with pytest.raises(ConfigError, match="layer_norm 'batch' is not known"):
        MixConfig(layer_norm="batch")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a mix of 2 layers was given a stack of 3"):
        ScalarMix(MixConfig(n_layers=2))(stack)
