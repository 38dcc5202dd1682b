"""`elmokit ablate` as a user meets it: one table, a report that grows, nothing trained twice."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
SMALL = ["--word-dim", 4, "--hidden", 4, "--head-width", 4, "--integrators", 1, "--epochs", 1, "--batch-size", 16]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    for part, n in (("train", 40), ("dev", 8)):
        rows = [f"{word} cat\t{word}" for word in ("good", "bad")] * (n // 2)
        (tmp_path / f"{part}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return tmp_path


def command(data: Path, model_folder: Path, *more: object) -> list[object]:
    files = ["--train", data / "train.tsv", "--dev", data / "dev.tsv", "-o", data / "out"]
    return ["ablate", "classify", *files, "-m", model_folder, "--device", "cpu", *SMALL, *more]


def test_one_table_and_more_of_it_later(cli: Cli, data: Path, model_folder: Path) -> None:
    first = cli(*command(data, model_folder, "--variants", "none,mix-both", "--seeds", 1, "--shares", "50,100"))
    assert first.code == 0, first.err
    assert "classify: 40 examples to train on, 8 to score on" in first.err
    assert "cell 1 of 5: none, 100% of the data, seed 1" in first.err
    assert "without ELMo" in first.out
    assert "mixes at both" in first.out
    assert "50%" in first.out
    content = json.loads((data / "out/ablation.json").read_text())
    assert content["metric"] == "accuracy"
    assert len(content["cells"]) == 5  # two on all data, two on half, and mix-input on all for the curve's end
    assert content["command"].startswith("elmokit ablate classify --train")
    again = cli(*command(data, model_folder, "--variants", "none", "--seeds", 2, "--shares", "100"))
    assert again.code == 0, again.err
    assert "cell 1 of" not in again.err
    assert "cell 2 of 2: none, 100% of the data, seed 2" in again.err
    assert len(json.loads((data / "out/ablation.json").read_text())["cells"]) == 2


def test_nothing_is_embedded_where_nothing_that_reads_it_is_left_to_train(
    cli: Cli, data: Path, model_folder: Path
) -> None:
    trained = command(data, model_folder, "--variants", "none,mix-input", "--seeds", 1, "--shares", 100)
    assert "layers of" in cli(*trained).err
    again = cli(*trained, "--cache", data / "elsewhere")
    assert again.code == 0, again.err
    assert "layers of" not in again.err
    assert "mix at input" in " ".join(again.out.split())
    assert not (data / "elsewhere").exists()


def test_a_network_with_one_place_for_the_layers(cli: Cli, data: Path, model_folder: Path) -> None:
    (data / "words.txt").write_text("good A\ncat B\n\nbad A\ncat B\n\n" * 8)
    files = ["--train", data / "words.txt", "--dev", data / "words.txt", "-o", data / "out", "-m", model_folder]
    small = ["--word-dim", 4, "--hidden", 4, "--char-dim", 0, "--epochs", 1, "--seeds", 1, "--shares", 100]
    done = cli("ablate", "taglm", *files, *small, "--device", "cpu")
    assert done.code == 0, done.err
    trained = json.loads((data / "out/ablation.json").read_text())["cells"]
    assert [cell["variant"] for cell in trained] == ["none", "mix-output", "as-set"]
    wrong = cli("ablate", "taglm", *files, *small, "--variants", "top")
    assert wrong.code
    assert "variant 'top': the network of taglm takes layers at output only" in wrong.err


def test_pictures(cli: Cli, data: Path, model_folder: Path) -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    done = cli(
        *command(data, model_folder, "--variants", "mix-input", "--seeds", 1, "--shares", 50, "--pictures", "html")
    )
    assert done.code == 0, done.err
    assert (data / "out/layer-weights.html").stat().st_size > 1000
    assert (data / "out/curve.html").stat().st_size > 1000


def test_without_the_extra_for_pictures_the_line_that_installs_it_is_told(
    cli: Cli, data: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    done = cli(*command(data, model_folder, "--variants", "none", "--seeds", 1, "--shares", 100))
    assert done.code == 0, done.err
    assert "pip install 'elmokit[plots]'" in done.err


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--variants", "mix"], "no variant 'mix'; available are none, layer-0"),
        (["--shares", "a"], "shares are 'a'; expected percentages such as 1,3,10"),
        (["--shares", "300"], "3.0 is no share"),
        (["--seeds", "0"], "0 seeds; expected 1 or more"),
        (["--pictures", "gif"], "a chart's file name ends in"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_trained(
    cli: Cli, data: Path, model_folder: Path, wrong: list[str], told: str
) -> None:
    done = cli(*command(data, model_folder, *wrong))
    assert done.code == 2
    assert told in done.err
    assert not (data / "out").exists()


def test_help(cli: Cli) -> None:
    assert "sentiment" in cli("ablate", "--help").out
    shown = cli("ablate", "entail", "--help").out
    assert "elmokit ablate entail --train train --dev dev -o ablation" in shown
    assert "--elmo-dropout" in shown
