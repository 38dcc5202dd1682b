"""`elmokit mixes`: the weights of real task models, as table and picture."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit.analysis.mixes import read_mixes

Cli = Callable[..., Any]
TEXT = "Ann B-PER\nsees O\nBob B-PER\n\nthe O\ncat O\n"


@pytest.fixture
def train(cli: Cli, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    small = ("--word-dim", 4, "--char-dim", 0, "--hidden", 4, "--layers", 1, "--epochs", 1, "--learning-rate", 0.1)

    def run(name: str, *options: object) -> Path:
        text, output = tmp_path / "text.txt", tmp_path / name
        files = ("--train", text, "--dev", text, "-o", output, "-m", model_folder, "--device", "cpu")
        done = cli("train", "ner", *files, *small, *options)
        assert done.code == 0, done.err
        return output

    return run


def test_table_and_picture(cli: Cli, train: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    both = train("both", "--elmo-at", "both")
    some = train("some", "--elmo-layers", "mix:1,2")
    first, second, third = read_mixes([both, some])
    assert {first.model, second.model} == {"both (ner, input)", "both (ner, output)"}
    assert (third.model, third.names) == ("some (ner)", ("lstm1", "lstm2"))
    assert all(sum(mix.shares) == pytest.approx(1) for mix in (first, second, third))
    assert len(first.shares) == 3
    assert first.shares[0] != 1 / 3  # it has learned
    picture = tmp_path / "mixes.svg"
    done = cli("mixes", both, some, "--plot", picture)
    assert done.code == 0, done.err
    assert f"lstm1 {third.shares[0]:.3f}" in done.out
    assert f"gamma {third.gamma:.2f}" in picture.read_text(encoding="utf-8")


def test_models_without_a_mix(cli: Cli, train: Callable[..., Path], model_folder: Path) -> None:
    assert "has no learned mix" in cli("mixes", train("fixed", "--elmo-layers", "top")).err
    assert "not a task model" in cli("mixes", model_folder).err
