"""`elmokit senses` from a corpus to groups and picture."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    lines = [f"{name} went to see the play at night . And so on ." for name in ("Ann", "Bob", "Cy")]
    lines += [f"Let us play ball , {name} ." for name in ("Ann", "Bob", "Cy")]
    path.write_text("\n".join([*lines, *lines]) + "\n", encoding="utf-8")
    return path


def test_groups_and_numbers(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "senses.json"
    given = ("-w", "play", "-m", model_folder, "--device", "cpu")
    done = cli("senses", corpus, *given, "--clusters", 2, "--output", out)
    assert done.code == 0, done.err
    assert "6 uses of 'play'" in done.out  # copies of a sentence count once
    assert done.out.count("3 uses, 50%") == 2
    assert "see the play at night" in done.out
    record = json.loads(out.read_text(encoding="utf-8"))
    assert sorted(use["group"] for use in record["uses"]) == [1, 1, 1, 2, 2, 2]
    assert all(use["tokens"][use["position"]] == "play" for use in record["uses"])


def test_picture(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    picture = tmp_path / "play.svg"
    done = cli("senses", corpus, "-w", "Play", "-m", model_folder, "-k", 2, "--plot", picture, "--device", "cpu")
    assert done.code == 0, done.err
    svg = picture.read_text(encoding="utf-8")
    assert "group 1 (3)" in svg
    assert "of the variance" in svg


def test_a_word_that_is_not_there(cli: Cli, corpus: Path, model_folder: Path) -> None:
    done = cli("senses", corpus, "-w", "cricket", "-m", model_folder)
    assert done.code == 2
    assert "'cricket' occurs 0 times" in done.err
    assert "no such file" in cli("senses", "nothing.txt", "-w", "play").err


def test_an_index_has_its_vectors(cli: Cli, corpus: Path, model_folder: Path, tmp_path: Path) -> None:
    corpus.write_text(corpus.read_text(encoding="utf-8") + "Play it again .\n", encoding="utf-8")
    index = tmp_path / "index"
    made = cli("index", corpus, "-o", index, "-m", model_folder, "--precision", "float16", "--device", "cpu")
    assert made.code == 0, made.err
    done = cli("senses", index, "-w", "play", "--clusters", 2, "--json")
    assert (done.code, done.err) == (0, "")
    record = json.loads(done.out)
    texts = {use["text"][use["start"] : use["end"]] for use in record["uses"]}
    assert (len(record["uses"]), texts) == (7, {"play", "Play"}), "copies of a sentence count once, in any case"
    given = ("-w", "play", "--clusters", 2, "--json", "-m", model_folder, "--device", "cpu")
    again = json.loads(cli("senses", corpus, *given).out)
    assert [group["size"] for group in record["groups"]] == [group["size"] for group in again["groups"]]
    assert "13 uses of 'play', 7 of them grouped" in cli("senses", index, "-w", "play").out
    assert "give it alone" in cli("senses", index, corpus, "-w", "play").err
    assert "leave --model, --layers and --tokenized out" in cli("senses", index, "-w", "play", "--layers", "1").err
    assert "did you mean 'play'" in cli("senses", index, "-w", "plays").err
