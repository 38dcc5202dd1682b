"""`elmokit probe` from files to table, numbers and chart."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit.cli.layer_values import short_names

Cli = Callable[..., Any]


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    """Two column files in which the word tells its tag, and half of the words an entity."""
    made = []
    for name, words in (("train.iob", "Ann sees Rome . Bob sees Ann ."), ("dev.iob", "Bob sees Rome .")):
        tags = {"Ann": "NNP B-PER", "Bob": "NNP B-PER", "Rome": "NNP B-LOC", "sees": "VB O", ".": ". O"}
        lines = [f"{word} {tags[word]}\n" + "\n" * (word == ".") for word in words.split()]
        path = tmp_path / name
        path.write_text("".join(lines), encoding="utf-8")
        made.append(path)
    return made[0], made[1]


def test_table_and_numbers(cli: Cli, texts: tuple[Path, Path], model_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.json"
    done = cli(
        "probe", *texts, "-m", model_folder, "--label", "type", "--label", "column:2", "--layers", "each",
        "--layers", "mix", "--output", out, "--device", "cpu", "--cache", tmp_path / "cache",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "type  3 labels; always the most frequent: 50.0" in done.out
    assert "column:2  3 labels" in done.out
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["view"] for row in rows] == ["0 token", "1 lstm1", "2 lstm2", "mix"] * 2
    assert all(row["selectivity"] == row["accuracy"] - row["control"] for row in rows)
    assert rows[0]["accuracy"] == 1.0
    assert f"{100 * rows[1]['accuracy']:.2f}" in done.out


def test_curve_and_charts(cli: Cli, texts: tuple[Path, Path], model_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    bars, curve = tmp_path / "bars.svg", tmp_path / "curve.svg"
    given = ("probe", *texts, "-m", model_folder, "-m", f"elmo:{model_folder}", "--layers", "0", "--device", "cpu")
    done = cli(*given, "--plot", bars)
    assert done.code == 0, done.err
    assert str(model_folder) in done.out  # two of the same name are told apart by all of it
    assert "control task" in bars.read_text(encoding="utf-8")
    done = cli(*given[:5], "--layers", "0", "--device", "cpu", "--curve", "1,2", "--plot", curve)
    assert done.code == 0, done.err
    assert "training sentences" in curve.read_text(encoding="utf-8")
    assert [line.split()[1] for line in done.out.splitlines() if line.lstrip().startswith("0")] == ["1", "2"]


def test_what_cannot_be_is_told_before_work(cli: Cli, texts: tuple[Path, Path], model_folder: Path) -> None:
    assert "--curve '1,x' not understood" in cli("probe", *texts, "-m", model_folder, "--curve", "1,x").err
    assert "ends in .html" in cli("probe", *texts, "-m", model_folder, "--plot", "chart.bmp").err
    assert "'verb' not understood" in cli("probe", *texts, "-m", model_folder, "--label", "verb").err


def test_a_seed_below_0_is_told(cli: Cli, texts: tuple[Path, Path], model_folder: Path) -> None:
    assert "--seed" in cli("probe", *texts, "-m", model_folder, "--seed", "-1").err


def test_short_names() -> None:
    assert short_names([None, "bert:google/bert-base", "models/en/"]) == ["bundled", "bert-base", "en"]
    assert short_names(["a/en", "b/en"]) == ["a/en", "b/en"]
