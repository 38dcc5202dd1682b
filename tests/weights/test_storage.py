"""Numbers in fewer bits: how far off they may be, and that they come back."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import WeightsError
from elmokit.weights.storage import Dtype, StoredTensors, dequantise, pack, quantise, quantise_groups

SHAPES = st.sampled_from([(3, 4), (1, 1), (5, 2, 3), (2, 8, 3)])


@given(SHAPES, st.integers(0, 1000), st.sampled_from([1e-6, 1.0, 1e4]), st.integers(1, 2))
def test_int8_is_off_by_at_most_half_a_step_of_its_row(shape, seed, size, axes):
    axes = min(axes, len(shape) - 1)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size
    values.view(-1, shape[-1])[0] = 0
    stored, scale = quantise(values, axes=axes)
    assert stored.dtype == torch.int8
    assert scale.shape == shape[:axes]
    assert stored.abs().max() <= 127
    step = scale.reshape(*scale.shape, *[1] * (len(shape) - axes))
    error = (dequantise(stored, scale) - values).abs()
    assert (error <= step * 0.5001).all()
    largest = values.abs().flatten(axes).amax(-1)
    np.testing.assert_allclose(scale[largest > 0] * 127, largest[largest > 0], rtol=1e-6)


def test_int8_keeps_a_scale_for_each_output_row():
    tensors = {"lstm.0.weight_x": torch.randn(2, 8, 3), "tokens.convolutions.0.weight": torch.randn(4, 3, 2)}
    tensors["lstm.0.bias"] = torch.randn(2, 8)
    tensors["tokens.projection.bias"] = torch.randn(5)
    packed = pack(tensors, "int8")
    assert {name: (tuple(t.shape), t.dtype) for name, t in packed.items() if name.endswith(".scale")} == {
        "lstm.0.weight_x.scale": ((2, 8), torch.float32),
        "tokens.convolutions.0.weight.scale": ((4,), torch.float32),
    }
    assert packed["lstm.0.bias"].dtype == packed["tokens.projection.bias"].dtype == torch.float16
    back = StoredTensors(packed, "here")
    assert back.keys() == tensors.keys()
    for name, values in tensors.items():
        assert (back[name] - values).abs().max() <= values.abs().max() / 250


def test_a_value_too_large_for_half_precision_is_refused():
    tensors = {"a": torch.tensor([1.0, 70000.0])}
    with pytest.raises(WeightsError, match="'a' has a value of 70000, too large for float16"):
        pack(tensors, "float16")
    assert pack(tensors, "bfloat16")["a"].dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_number_is_refused(dtype: Dtype, value: float):
    with pytest.raises(WeightsError, match=f"'a' has a value of {value}, which cannot be stored anew"):
        pack({"a": torch.full((2, 64), value)}, dtype)


def test_integers_without_scales_are_refused():
    with pytest.raises(WeightsError, match=r"here: 'a' has type int8"):
        StoredTensors({"a": torch.zeros(2, 2, dtype=torch.int8)}, "here")
    with pytest.raises(WeightsError, match="one scale per row"):
        StoredTensors({"a": torch.zeros(2, 2, dtype=torch.int8), "a.scale": torch.ones(3)}, "here")


def zeros(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


@pytest.mark.parametrize(
    ("values", "scale", "said"),
    [
        (zeros(3, 40), torch.ones(3, 1), "one scale for 64 numbers"),  # 80 numbers are no whole groups
        (zeros(3, 32), torch.ones(3, 2), "one scale for 64 numbers"),
        (zeros(32), torch.ones(1), "one scale for 64 numbers"),
        (torch.tensor(7, dtype=torch.uint8), torch.tensor(1.0), "one scale for 64 numbers"),
        (zeros(3, 32), None, "'a' has type uint8, expected floats"),
        (zeros(3, 32), zeros(3, 1), "'a' has type uint8 with scales of type uint8"),
        (zeros(3, 32), zeros(3, 1, dtype=torch.float8_e4m3fn), "with scales of type float8_e4m3fn"),
        (zeros(3, 4, dtype=torch.int8), zeros(3, dtype=torch.int64), "with scales of type int64"),
        (torch.ones(3, 4), torch.ones(3), "'a' is float32 of shape"),
        (zeros(3, 4, dtype=torch.float8_e4m3fn), None, "'a' has type float8_e4m3fn, expected floats"),
    ],
)
def test_types_and_scales_that_no_writer_made_are_refused(values, scale, said):
    held = {"a": values} if scale is None else {"a": values, "a.scale": scale}
    with pytest.raises(WeightsError, match=said):
        StoredTensors(held, "here")


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
def test_scales_of_groups_may_be_any_float(kind):
    packed, scale = quantise_groups(torch.linspace(-1, 1, 3 * 128).reshape(3, 128))
    scale = scale.to(torch.bfloat16)
    expected = StoredTensors({"a": packed, "a.scale": scale.half()}, "here")
    found = StoredTensors({"a": packed, "a.scale": scale.to(kind)}, "here")
    assert torch.equal(found["a"], expected["a"])
    assert all(torch.equal(a, b) for a, b in zip(found.stored("a"), expected.stored("a"), strict=True))


def test_int8_with_a_scale_for_a_whole_direction_goes_as_floats():
    values, scale = torch.arange(24, dtype=torch.int8).reshape(2, 3, 4), torch.tensor([0.5, 2.0])
    stored = StoredTensors({"lstm.0.weight_h": values, "lstm.0.weight_h.scale": scale}, "here").stored(
        "lstm.0.weight_h"
    )
    assert isinstance(stored, torch.Tensor)
    assert torch.equal(stored, values * scale[:, None, None])


def test_a_value_too_large_for_the_scales_of_four_bits_is_refused():
    with pytest.raises(WeightsError, match="'a' has a value of 500000, too large for int4"):
        pack({"a": torch.full((1, 64), 5e5)}, "int4")
