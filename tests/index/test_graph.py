"""Approximate search: it finds nearly all that exact search finds, also while the index grows past it."""

import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError, MissingExtraError
from elmokit.formats import read_lines
from elmokit.index import Index

pytest.importorskip("usearch", reason="usearch is not installed: pip install 'elmokit[neighbours]'")


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


def many(n: int, *, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"w{k}" for k in rng.integers(0, 400, rng.integers(1, 20))] for _ in range(n)]


@pytest.fixture(scope="module")
def built(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph") / "index"
    Index.build(elmo, many(300), folder).make_graph(threads=1)
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "index"))


def test_recall_is_measured_and_high(folder: Path) -> None:
    index = Index.open(folder)
    assert index.graph is not None
    known = index.graph.description
    assert known.rows == len(index)
    assert known.recall is not None
    assert known.recall >= 0.95
    assert known.checked == 200
    assert index.recall(queries=100) >= 0.95


def test_recall_on_real_text_with_real_weights(shared: Path, tmp_path: Path) -> None:
    real = Elmo.from_pretrained(shared / "fixtures" / "elmo-skip", device="cpu", tokenizer="english")
    lines = islice(read_lines(shared / "corpora" / "heldout" / "wikinews.txt.xz"), 60)
    sentences = [sentence for line in lines for sentence in real.tokenizer.split(line)]
    index = Index.build(real, sentences, tmp_path / "index")
    index.make_graph(threads=1)
    assert len(index) > 2000
    assert index.recall(queries=150) >= 0.95


def test_scores_are_those_of_exact_search(folder: Path, elmo: Elmo) -> None:
    index = Index.open(folder)
    queries = np.concatenate(elmo.encode_tokens(many(5, seed=5), layers="top"))
    near, exact = index.search(queries, k=5), index.search(queries, k=5, exact=True)
    same = near.rows == exact.rows
    assert same.mean() > 0.9
    np.testing.assert_allclose(near.scores[same], exact.scores[same], atol=1e-5)


def test_what_came_after_the_graph_is_found_too(folder: Path, elmo: Elmo) -> None:
    index = Index.open(folder)
    before = len(index)
    index.grow(elmo, [["an", "entirely", "new", "sentence"]])
    assert len(index.graph or ()) == before
    query = elmo.encode_tokens([["an", "entirely", "new", "sentence"]], layers="top")[0]
    assert index.search(query, k=1).rows[:, 0].tolist() == list(range(before, before + 4))
    made = index.make_graph(threads=1)
    assert len(made) == len(index)
    assert made.description.begun_with == before, "a little more is added to what is there"
    assert index.search(query, k=1).rows[:, 0].tolist() == list(range(before, before + 4))
    assert [p.name for p in folder.glob("graph-*")] == [f"graph-{len(index)}.usearch"]


def test_an_index_that_doubled_gets_a_new_graph(folder: Path, elmo: Elmo) -> None:
    index = Index.open(folder)
    index.grow(elmo, many(400, seed=2))
    made = index.make_graph(threads=1)
    assert made.description.begun_with == len(index)
    assert index.recall(queries=100) >= 0.95


def test_a_graph_that_is_gone_leaves_exact_search(folder: Path) -> None:
    index = Index.open(folder)
    query = index.vectors([5])
    want = index.search(query, k=3, exact=True)
    for path in folder.glob("graph-*.usearch"):
        path.unlink()
    index = Index.open(folder)
    assert index.graph is None
    assert index.search(query, k=3).rows.tolist() == want.rows.tolist()
    with pytest.raises(InputError, match="has no graph"):
        index.tune()


def test_without_the_library_the_line_that_installs_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("usearch", "usearch.index"):
        monkeypatch.setitem(sys.modules, name, None)
    index: Any = Index.open(folder)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[neighbours\]'"):
        index.make_graph()
