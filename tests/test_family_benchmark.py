"""The family benchmark from data to table and picture, with models that know nothing."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import models
import transformer_models
from elmokit.analysis.sense_files import SenseInstance
from elmokit.analysis.senses import SenseCentroids
from elmokit.encoders import WordTable
from elmokit.weights import save_pretrained

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
SYSTEMS = [("ELMo", "0 token"), ("ELMo", "1 lstm1"), ("static", "glove"), ("BERT", "0 embeddings"), ("BERT", "1 last")]
Script = Callable[..., None]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def family(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Script:
    """The script, called with its arguments."""

    def run(*given: object) -> None:
        monkeypatch.setattr(sys, "argv", ["family.py", *map(str, given)])
        load("family").main()

    return run


@pytest.fixture
def page(load: Callable[[str], ModuleType], tmp_path: Path) -> Path:
    begin, end = load("family_page").MARKS
    path = tmp_path / "page.md"
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_from_data_to_table(
    family: Script, page: Path, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo = save_pretrained(models.tiny().pretrained, tmp_path / "elmo")
    bert = transformer_models.bert().save(tmp_path / "bert")
    rng = np.random.default_rng(0)
    table = WordTable(["the", "of", "."], rng.normal(size=(3, 4)).astype(np.float32))
    vectors = tmp_path / "vectors.safetensors"
    table.save(vectors)
    few = {"train-sentences": 6, "dev-sentences": 4, "pairs": 6, "distil": 1}
    limits = [part for name, value in few.items() for part in (f"--{name}", value)]
    given = [elmo, *limits, "--shared", shared, "--vectors", vectors, "--bert", bert, "--device", "cpu"]
    family(*given, "--only", "pos", "--json", tmp_path / "pos.json")
    family(*given, "--only", "scws", "--json", tmp_path / "scws.json")
    rows = json.loads((tmp_path / "scws.json").read_text(encoding="utf-8"))["rows"]
    assert [f"{row['group']} {row['name']}" for row in rows] == [
        "ELMo 0 token", "ELMo 1 lstm1", "ELMo 2 lstm2", "ELMo mix", "static vectors", "static averages of ELMo",
        "BERT 0 embeddings", "BERT 1", "BERT 2", "BERT 3 second-to-last", "BERT 4 last", "BERT weighted-last-four",
        "BERT concat-last-four", "BERT weighted-all", "joined vectors + ELMo", "joined ELMo + BERT",
    ]  # fmt: skip
    assert all(-100 <= row["scws"] <= 100 for row in rows)
    capsys.readouterr()
    family("--from", tmp_path / "scws.json", tmp_path / "pos.json", "--page", page)
    out = capsys.readouterr().out
    assert out.startswith("| | POS | SCWS |")
    assert "| 1 lstm1 |" in out
    written = page.read_text(encoding="utf-8")
    assert out.strip() in written
    assert "old" not in written
    assert written.startswith("before\n")
    assert written.endswith("after\n")


def test_pictures_from_numbers(load: Callable[[str], ModuleType], family: Script, tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    scores = {"pos": [80.0, 90.0, 70.0, 75.0, 85.0], "wic": [50.0, 57.0, 51.0, 52.0, 58.0]}
    load("family_page").Numbers(SYSTEMS, {"pairs": 0}, scores=scores).write(tmp_path / "numbers.json")
    family("--from", tmp_path / "numbers.json", "--plots", tmp_path / "plots")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"family.svg", "family-layers.svg"}


def test_numbers_of_two_measurements_are_not_put_together(
    load: Callable[[str], ModuleType], family: Script, tmp_path: Path
) -> None:
    for name, limit in (("a", 0), ("b", 5)):
        load("family_page").Numbers(SYSTEMS, {"pairs": limit}, scores={"wic": [50.0] * 5}).write(tmp_path / name)
    with pytest.raises(SystemExit, match="other lines or limits"):
        family("--from", tmp_path / "a", tmp_path / "b")


def test_parts_side_by_side(load: Callable[[str], ModuleType]) -> None:
    side_by_side = load("family_models").side_by_side
    torch.manual_seed(0)
    layers = {"a": torch.randn(5, 3, 4).half(), "b": torch.randn(5, 1, 2).half()}
    parts = (("a", "mix"), ("b", "0"))
    made = side_by_side(parts, layers, {("a", "mix"): (0.5, 0.5, 0.0)}, unit=False)
    torch.testing.assert_close(made[:, :4], layers["a"][:, :2].float().mean(dim=1).half())
    assert torch.equal(made[:, 4:], layers["b"][:, 0])
    unit = side_by_side(parts, layers, {}, unit=True)
    torch.testing.assert_close(unit.norm(dim=1), torch.full((5,), 2**0.5))
    average = torch.nn.functional.normalize(layers["a"].float().mean(dim=1).half().float(), dim=1)
    torch.testing.assert_close(unit[:, :4], average)


def test_senses_as_the_package_finds_them(load: Callable[[str], ModuleType]) -> None:
    rng = np.random.default_rng(1)
    lemmas = [("bank", "n"), ("play", "v"), ("run", "v")]

    def draw(count: int, senses: int) -> list[SenseInstance]:
        picked = [lemmas[k] for k in rng.integers(len(lemmas), size=count)]
        keys = [tuple(dict.fromkeys(f"{lemma}%{k}" for k in rng.integers(senses, size=2))) for lemma, _ in picked]
        return [SenseInstance(0, 1, lemma, key) for lemma, key in zip(picked, keys, strict=True)]

    seen, asked = draw(40, 3), [*draw(20, 3), SenseInstance(0, 1, ("new", "a"), ("new%1",))]
    ours, held = (rng.normal(size=(len(side), 6)).astype(np.float32) for side in (seen, asked))
    for rows, side in ((ours, seen), (held, asked)):
        rows[[i.lemma == ("run", "v") for i in side]] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]  # no vector tells its senses
    centroids = SenseCentroids()
    for instance, row in zip(seen, ours, strict=True):
        centroids.add(instance, [row[None]])
    wanted = [centroids.nearest(i, [row[None]])[0] for i, row in zip(asked[:-1], held[:-1], strict=True)]
    nearest = load("family_parts").NearestSenses(seen, asked, device=torch.device("cpu"))
    assert list(nearest.answers(torch.from_numpy(ours), torch.from_numpy(held))) == [*wanted, None]
