import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from elmokit.config import plain, revive
from elmokit.errors import ConfigError
from elmokit.pretrain.config import (
    PRESETS,
    FinetuneConfig,
    PretrainConfig,
    load_config,
    load_finetune_config,
)


def test_flags_go_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('cell_dim = 300\nepochs = 4\nfilters = [[1, 8], [2, 9]]\nsoftmax = "full"\n')
    config = load_config("tiny", file=file, flags={"epochs": 7.0, "rows": None, "filters": "3:4,5:6"})
    assert config.projection_dim == 64  # tiny
    assert config.cell_dim == 300  # the file
    assert config.softmax == "full"
    assert config.epochs == 7.0  # the flag
    assert config.filters == ((3, 4), (5, 6))
    assert config.rows == PRESETS["tiny"]["rows"]  # a flag that was not given
    assert load_config("tiny", file=file).filters == ((1, 8), (2, 9))
    assert load_config("tiny", file=file).epochs == 4.0


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_sound_and_survive_json(preset: str) -> None:
    config = load_config(preset)
    assert revive(PretrainConfig, json.loads(json.dumps(plain(config)))) == config
    assert config.model().width == 2 * config.projection_dim


def test_the_official_sizes_are_the_published_ones() -> None:
    sizes = {name: (c := load_config(name).model()).lstm.cell_dim for name in ("small", "medium", "original")}
    assert sizes == {"small": 1024, "medium": 2048, "original": 4096}
    assert c.lstm.projection_dim == 512
    assert c.tokens.n_highway == 2


def test_fine_tuning_is_gentler_and_leaves_the_model_its_shape(tmp_path: Path) -> None:
    config = load_finetune_config(flags={"epochs": 2.0, "softmax_epochs": 0.5})
    assert config.learning_rate < PretrainConfig().learning_rate
    assert config.epochs == 2.0
    first = config.first_stage()
    assert (first.epochs, first.learning_rate, first.rows) == (0.5, config.softmax_rate, config.rows)
    assert {f.name for f in fields(FinetuneConfig)} - {f.name for f in fields(PretrainConfig)} == {
        "softmax_words",
        "softmax_epochs",
        "softmax_rate",
    }
    file = tmp_path / "my.toml"
    file.write_text("cell_dim = 300\n")
    with pytest.raises(ConfigError, match=r"my.toml: cell_dim belongs to the model"):
        load_finetune_config(file=file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"softmax": "hierarchical"}, 'softmax is "hierarchical"; expected one of sampled, full, adaptive'),
        ({"state": "kept"}, 'state is "kept"; expected one of reset, carry, random'),
        ({"rows": 10, "accumulate": 3}, r"rows \(10\) cannot be split in 3 equal parts"),
        ({"rows": 0}, "the command line: rows is 0; expected a whole number of at least 1"),
        ({"seed": -1}, "seed is -1; expected a whole number of at least 0"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes is -1.0; expected a number of at least 0"),
        ({"log_every": 0}, "log_every is 0; expected a whole number of at least 1"),
        ({"learning_rate": float("nan")}, "learning_rate is NaN; expected a number above 0"),
        ({"heldout": 0.7}, r"heldout is 0.7; expected a number from 0 to 0.5"),
        ({"dropout": 1.0}, r"dropout is 1.0; expected a number from 0 to 0.99"),
        ({"steps": -1}, "steps is -1; expected a whole number of at least 0"),
        ({"cell_dimension": 5}, "unknown field 'cell_dimension'; the fields are .*cell_dim"),
        ({"rows": "8"}, 'rows is "8"; expected a whole number'),
        ({"filters": "1-2"}, 'filters is "1-2"; expected pairs of whole numbers such as'),
        ({"skip_connections": 1}, "skip_connections is 1; expected true or false"),
    ],
)
def test_what_cannot_be_is_refused_in_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("tiny", flags=changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"softmax_epochs": -1.0}, "the command line: softmax_epochs is -1.0; expected a number of at least 0"),
        ({"softmax_rate": 0.0}, "the command line: softmax_rate is 0.0; expected a number above 0"),
    ],
)
def test_the_first_stage_of_fine_tuning_is_checked_by_its_own_names(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_finetune_config(flags=changes)


def test_unreadable_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read"):
        load_config("tiny", file=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("cell_dim = = 3")
    with pytest.raises(ConfigError, match=r"bad.toml: not a TOML file"):
        load_config("tiny", file=tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="preset 'huge' is not known; expected one of tiny, small"):
        load_config("huge")


def test_only_what_is_computed_makes_a_difference() -> None:
    a = PretrainConfig(seed=1, log_every=10, workers=3)
    b = PretrainConfig(seed=2, log_every=20, workers=4)
    assert a.differences(b) == ["seed: 1 there, 2 here"]
