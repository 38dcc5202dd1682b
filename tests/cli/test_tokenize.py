"""`elmokit tokenize` as a user meets it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_sentences_kinds_and_json(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Dr. Who didn't come. He slept.\n", encoding="utf-8")
    done = cli("tokenize", tmp_path / "text.txt", "--tokenizer", "unicode@2+lower")
    assert done.out == "dr. who did n't come .\nhe slept .\n"
    done = cli("tokenize", "Dr. Who", "--tokenizer", "unicode@2", "--explain")
    assert done.out.splitlines()[0].split() == ["0", "3", "abbreviation", "Dr."]
    done = cli("tokenize", "It is 5.", "--json", "--explain")
    record = json.loads(done.out)
    assert record["tokens"] == ["It", "is", "5", "."]
    assert record["kinds"] == ["word", "word", "number", "mark"]


def test_that_of_a_model(cli: Cli, model_folder: Path) -> None:
    done = cli("tokenize", "It's here.", "-m", model_folder)
    assert done.out == "It 's here .\n"


@pytest.mark.parametrize("name", ["klingon", "unicode@9", "python:nothing_there:cut", "unicode+upper"])
def test_what_is_not_there(cli: Cli, name: str) -> None:
    done = cli("tokenize", "text", "--tokenizer", name)
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_learnt_abbreviations(cli: Cli, tmp_path: Path) -> None:
    lines = [f"Then Prof. {name} left. He slept and then he woke." for name in ("Alder", "Brook", "Cole") * 20]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    done = cli("tokenize", tmp_path / "text.txt", "--learn", tmp_path / "learnt.txt")
    assert done.code == 0
    assert "1 abbreviations" in done.err
    done = cli("tokenize", "Prof. Cole left.", "--tokenizer", f"unicode@2+abbreviations:{tmp_path / 'learnt.txt'}")
    assert done.out == "Prof. Cole left .\n"
    done = cli("tokenize", "text", "--tokenizer", f"unicode@2+abbreviations:{tmp_path / 'none'}")
    assert (done.code, done.err.count("\n")) == (2, 1)
