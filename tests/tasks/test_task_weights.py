"""Numbers of task networks on disk: in any type, with counters as they are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from elmokit.errors import WeightsError
from elmokit.tasks._weights import read_weights, write_weights

TOLD: dict[str, Any] = {"described": "config.json", "advice": "save it again"}


def network() -> nn.Module:
    torch.manual_seed(3)
    made = nn.Sequential(nn.Linear(64, 6), nn.BatchNorm1d(6))
    made[1].num_batches_tracked.fill_(123_456_789)  # float16 cannot hold it
    return made


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "int8", "int4"])
def test_counters_stay_whole_in_every_type(dtype: Any, tmp_path: Path) -> None:
    state = network().state_dict()
    write_weights(tmp_path / "w", state, dtype=dtype)
    back = read_weights(tmp_path / "w", state, **TOLD)
    assert int(back["1.num_batches_tracked"]) == 123_456_789
    assert back["1.num_batches_tracked"].dtype == torch.int64
    assert {name for name, values in back.items() if values.dtype == torch.float32} == back.keys() - {
        "1.num_batches_tracked"
    }
    torch.testing.assert_close(back["0.weight"], state["0.weight"], atol=0.02, rtol=0)
    network().load_state_dict(back)


def test_four_bits_for_any_width(tmp_path: Path) -> None:
    """Columns that fill up the last group are not part of the matrix."""
    state = {"wide": torch.randn(5, 70), "thin": torch.randn(5, 9), "scale": torch.randn(3), "one": torch.tensor(2.0)}
    write_weights(tmp_path / "w", state, dtype="int4")
    assert load_file(tmp_path / "w")["wide"].shape == (5, 64)  # two numbers a byte, two groups
    back = read_weights(tmp_path / "w", state, **TOLD)
    assert {name: values.shape for name, values in back.items()} == {name: v.shape for name, v in state.items()}
    torch.testing.assert_close(back["wide"], state["wide"], atol=0.4, rtol=0)
    with pytest.raises(WeightsError, match=r"'wide' has shape \(5, 128\), but config.json describes \(5, 60\)"):
        read_weights(tmp_path / "w", state | {"wide": torch.zeros(5, 60)}, **TOLD)
    write_weights(tmp_path / "w", state | {"wide": torch.zeros(5, 128)}, dtype=None)  # floats are never filled up
    with pytest.raises(WeightsError, match=r"'wide' has shape \(5, 128\), but config.json describes \(5, 70\)"):
        read_weights(tmp_path / "w", state, **TOLD)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held | {"0.bias": torch.ones(6, dtype=torch.int64)}, "'0.bias' has type int64, expected floats"),
        (lambda held: held | {"0.bias": torch.ones(7)}, r"'0.bias' has shape \(7,\), but config.json describes \(6,\)"),
        (lambda held: {n: v for n, v in held.items() if n != "0.bias"}, "'0.bias' is missing"),
        (lambda held: held | {"0.bias": torch.full((6,), torch.nan)}, "'0.bias' has numbers that are NaN or infinite"),
        (
            lambda held: held | {"1.running_var": torch.full((6,), torch.inf)},
            "'1.running_var' has numbers that are NaN",
        ),
        (lambda held: held | {"more": torch.ones(1)}, "'more' is no part of the network"),
        (lambda held: held | {"more": torch.ones(1, dtype=torch.int64)}, "'more' has type int64"),
    ],
)
def test_what_does_not_fit_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    state = network().state_dict()
    write_weights(tmp_path / "w", state, dtype=None)
    save_file(change(load_file(tmp_path / "w")), tmp_path / "w")
    with pytest.raises(WeightsError, match=said):
        read_weights(tmp_path / "w", state, **TOLD)
