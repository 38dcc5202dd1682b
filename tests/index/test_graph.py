"""Approximate search: it finds nearly all that exact search finds, also while the index grows past it."""

import json
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import FormatError, InputError, MissingExtraError
from elmokit.formats import read_lines
from elmokit.index import Index, save_word_means

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


def test_recall_of_an_index_with_few_rows(elmo: Elmo, tmp_path: Path) -> None:
    index = Index.build(elmo, [["a", "b", "c"], ["d"]], tmp_path / "index")
    description = index.make_graph(threads=1).description
    assert index.tune() == index.recall() == 1
    assert (description.rows, description.file) == (4, "graph-4.usearch")


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


def test_a_graph_of_rows_that_were_dropped_goes_with_them(folder: Path, elmo: Elmo) -> None:
    def dying() -> Iterator[list[str]]:
        yield from many(400, seed=3)
        raise KeyboardInterrupt

    index = Index.open(folder)
    before = len(index)
    graph = (folder / f"graph-{before}.usearch").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.index.growth.CHUNK_TOKENS", 64)
        patch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)
        with pytest.raises(KeyboardInterrupt):
            index.grow(elmo, dying())
    index = Index.open(folder)
    assert not index.finished
    index.grow(elmo, many(40, seed=4), restart=True)
    assert (folder / f"graph-{before}.usearch").read_bytes() == graph, "it knows nothing of what was dropped"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("elmokit.index.growth.CHUNK_TOKENS", 64)
        patch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)
        with pytest.raises(KeyboardInterrupt):
            index.grow(elmo, dying())
    index = Index.open(folder)
    index.make_graph(threads=1)  # of a text that is not complete yet
    save_word_means(index)
    index.grow(elmo, many(40, seed=5), restart=True)
    assert not [*folder.glob("graph*"), *folder.glob("types-*")]
    index = Index.open(folder)
    rows = np.arange(len(index))
    assert (index.search(index.vectors(rows), k=1).scores > 0.999).all()
    index.make_graph(threads=1)
    assert index.recall(queries=100) >= 0.95


def test_a_graph_is_compared_with_its_checksum_before_the_library_sees_it(folder: Path) -> None:
    (path,) = folder.glob("graph-*.usearch")
    whole, description = path.read_bytes(), (folder / "graph.json").read_text()
    query = Index.open(folder).vectors([0])
    rng = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(whole)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(
            FormatError, match=r"graph-\d+\.usearch: does not have the checksum.*elmokit index -o FOLDER"
        ):
            Index.open(folder).search(query)
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match="checksum"):
        Index.open(folder).verify()
    path.write_bytes(whole)
    stored = json.loads(description)
    stored["mean"][0] += 0.5
    (folder / "graph.json").write_text(json.dumps(stored))
    with pytest.raises(FormatError, match="checksum"):
        Index.open(folder).search(query)
    assert Index.open(folder).search(query, k=1, exact=True).rows.tolist() == [[0]], "exact search needs no graph"
    (folder / "graph.json").write_text(description)
    assert Index.open(folder).verify()


def test_a_damaged_graph_without_a_checksum_does_not_crash_the_process(folder: Path) -> None:
    stored = json.loads((folder / "graph.json").read_text())
    del stored["checksum"]
    (folder / "graph.json").write_text(json.dumps(stored))
    (path,) = folder.glob("graph-*.usearch")
    whole, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    query = Index.open(folder).vectors([0])
    links = 8 + stored["rows"] * (12 + 2) + 104  # where they begin
    for _ in range(150):
        data = bytearray(whole)
        data[int(rng.integers(links, len(data)))] = int(rng.integers(256))
        path.write_bytes(data)
        try:
            Index.open(folder).search(query)
        except FormatError:
            refused += 1
    assert refused > 30


def test_a_graph_without_a_checksum_opens_and_gets_one(folder: Path) -> None:
    path = folder / "graph.json"
    stored = json.loads(path.read_text())
    checksum = stored.pop("checksum")
    path.write_text(json.dumps(stored))  # as 0.1.0 wrote it
    index = Index.open(folder)
    assert not index.verify()
    assert index.search(index.vectors([7]), k=1).rows.tolist() == [[7]]
    index.make_graph()
    assert json.loads(path.read_text())["checksum"] == checksum
    assert Index.open(folder).verify()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 10**6},
        {"rows": 5},
        {"rows": -1},
        {"rows": "many"},
        {"mean": [0.0] * 5},
        {"mean": [float("nan")] * 12},
        {"mean": None},
        {"file": "../other"},
        {"file": 7},
        {"expansion": 0},
        {"expansion": 10**12},
        {"recall": 2.0},
        {"surplus": 1},
    ],
)
def test_a_description_that_does_not_fit(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / "graph.json"
    stored = json.loads(path.read_text())
    del stored["checksum"]
    path.write_text(json.dumps(stored | changes))
    with pytest.raises(FormatError, match="elmokit index -o FOLDER"):
        Index.open(folder).search(np.ones(12, dtype=np.float32))


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
