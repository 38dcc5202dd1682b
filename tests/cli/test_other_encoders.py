"""`embed`, `compare` and `info` with BERT, GPT and static vectors."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

Cli = Callable[..., Any]


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "glove.txt").write_text("the 0.5 1.5\ncat 2 -1\n")
    return tmp_path / "glove.txt"


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformer_models = pytest.importorskip("transformer_models")
    folder: Path = transformer_models.bert(layers=6).save(tmp_path_factory.mktemp("bert"))
    return folder


def test_embed_static_vectors(cli: Cli, vectors: Path, tmp_path: Path) -> None:
    done = cli("embed", "The cat sat", "-m", vectors, "-o", tmp_path / "out.h5")
    assert done.code == 0, done.err
    assert "words that the model does not know: 1 (kept in their place)" in done.err
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_allclose(file["0"][...], [[0.5, 1.5], [2, -1], [0, 0]])
    done = cli("embed", "the cat sat", "-m", vectors, "--unknown", "error")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "no vector for 'sat'" in done.err


def test_embed_bert(cli: Cli, bert_folder: Path, tmp_path: Path) -> None:
    done = cli(
        "embed", "the cat", "", "-m", f"bert:{bert_folder}", "-o", tmp_path / "out.h5", "--layers", "concat-last-four",
        "--subwords", "first+last",
    )  # fmt: skip
    assert done.code == 0, done.err
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["0"].shape == (2, 4 * 2 * 16)
        assert file["1"].shape == (0, 4 * 2 * 16)
    assert "nearest other word" in cli("embed", "the cat", "-m", bert_folder).out


def test_compare_many_layers_fits_the_page(cli: Cli, bert_folder: Path, vectors: Path) -> None:
    done = cli("compare", "the cat sat", "a cat", "-w", "cat", "-m", bert_folder)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[-9:]] == [
        "layer",
        "embeddings",
        *(f"layer{k}" for k in range(1, 7)),
        "average",
    ]
    many = cli("compare", *["the cat"] * 5, "-w", "cat", "-m", bert_folder)
    assert many.out.count("embeddings") == 2, "ten pairs in two tables"
    assert "…" not in many.out
    one = cli("compare", "the cat sat", "a cat", "-w", "cat", "-m", vectors)
    assert one.out.splitlines()[-1].split() == ["1", "and", "2", "1.000", "1.000"]


def test_info(cli: Cli, bert_folder: Path, vectors: Path) -> None:
    assert "7 layers of 16; a word's vector depends on the words on both sides" in cli("info", bert_folder).out
    assert json.loads(cli("info", vectors, "--json").out)["context"] == "none"


def test_without_transformers_the_pip_line_is_told(
    cli: Cli, bert_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = cli("embed", "text", "-m", bert_folder)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "pip install 'elmokit[transformers]'" in done.err
