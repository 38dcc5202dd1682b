"""The one grammar for choosing layers, and the stack it chooses from."""

import numpy as np
import pytest
import torch

from elmokit.errors import InputError
from elmokit.layers import LayerChoice, LayerStack, cosine

VALUES = torch.arange(24.0).reshape(4, 2, 3)  # (L, T, D)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("all", VALUES),
        ("top", VALUES[3]),
        ("0", VALUES[0]),
        (2, VALUES[2]),
        ("-2", VALUES[2]),
        ("average", VALUES.mean(0)),
        ("mix", VALUES.mean(0)),
        ("average:1,2", VALUES[1:3].mean(0)),
        ("average: 1, 2", VALUES[1:3].mean(0)),
        ("mix:-2..-1", VALUES[2:].mean(0)),
        ("concat:1,3", torch.cat([VALUES[1], VALUES[3]], -1)),
        ("concat:-3..-1", torch.cat([VALUES[1], VALUES[2], VALUES[3]], -1)),
        ("average:1..-2", VALUES[1:3].mean(0)),
        ("embeddings", VALUES[0]),
        ("second-to-last", VALUES[2]),
        ("last", VALUES[3]),
        ("weighted-last-four", VALUES.mean(0)),
        ("concat-last-four", torch.cat(list(VALUES), -1)),
        ("weighted-all", VALUES[1:].mean(0)),
        ("weights:1,0,0,.5*2", 2 * VALUES[0] + VALUES[3]),
        ("weights:1,-1,0,0", VALUES[0] - VALUES[1]),
    ],
)
def test_the_grammar(spec: str | int, expected: torch.Tensor) -> None:
    choice = LayerChoice.parse(spec)
    got = choice.apply(VALUES)
    torch.testing.assert_close(got, expected)
    assert got.shape[-1] == choice.width(4, 3)
    assert LayerChoice.parse(choice) is choice


@pytest.mark.parametrize(
    "spec",
    [
        *("", "bottom", "1.5", "average:", "concat", "weights", "weights:a", "concat:1..", "all:1"),
        *("weights:1,nan", "weights:1,1*inf", "9" * 5000, "concat:" + "9" * 5000),
    ],
)
def test_what_is_not_understood_lists_the_grammar(spec: str) -> None:
    with pytest.raises(InputError, match=r"not understood; expected all, top, a layer number"):
        LayerChoice.parse(spec)


def test_layers_that_are_not_there() -> None:
    for spec in ("4", "-5", "concat:1,9", "average:2..4"):
        with pytest.raises(InputError, match="the model has layers 0 to 3"):
            LayerChoice.parse(spec).apply(VALUES)
    with pytest.raises(InputError, match=r"layers 2\.\.1 of a model with layers 0 to 3 are none"):
        LayerChoice.parse("average:2..1").apply(VALUES)
    with pytest.raises(InputError, match="3 layer weights given, but the model has 4 layers"):
        LayerChoice.parse("weights:1,1,1").apply(VALUES)


def test_inner_drops_boundaries_and_keeps_padding_zero() -> None:
    values = torch.arange(1.0, 11.0).reshape(1, 2, 5, 1)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    stack = LayerStack(values * mask[..., None], mask, ("token",), bounded=True)
    inner = stack.inner()
    assert inner.values[0, :, :, 0].tolist() == [[2, 3, 4], [7, 0, 0]]
    assert inner.mask.tolist() == [[True] * 3, [True, False, False]]
    assert inner.inner() is inner


@pytest.mark.parametrize("spec", ["all", "top", "average", "average:1..-2", "concat:1,3", "weights:1,0,-2,.5*2"])
def test_arrays_as_tensors(spec: str) -> None:
    got = LayerChoice.parse(spec).apply(VALUES.numpy())
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, LayerChoice.parse(spec).apply(VALUES).numpy(), rtol=1e-6)


def test_a_cosine_is_at_most_1() -> None:
    rows = np.random.default_rng(0).standard_normal((200, 512)).astype(np.float32)
    assert max(cosine(row, row) for row in rows) == 1
    assert min(cosine(row, -row) for row in rows) == -1
