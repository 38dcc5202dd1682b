"""The family benchmark from data to table and picture, with models that know nothing."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import models
import transformer_models
from elmokit.encoders import WordTable
from elmokit.weights import save_pretrained

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "family.py"


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("family", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "family", module)  # its dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_from_data_to_table(
    family: ModuleType,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
    elmo = save_pretrained(models.tiny().pretrained, tmp_path / "elmo")
    bert = transformer_models.bert().save(tmp_path / "bert")
    rng = np.random.default_rng(0)
    table = WordTable(["the", "of", "."], rng.normal(size=(3, 4)).astype(np.float32))
    vectors = tmp_path / "vectors.safetensors"
    table.save(vectors)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{family.MARKS[0]}\nold\n{family.MARKS[1]}\nafter\n", encoding="utf-8")
    few = {"train-sentences": 6, "dev-sentences": 4, "pairs": 6, "distil": 1}
    given = [part for name, value in few.items() for part in (f"--{name}", str(value))]
    files = ["--json", tmp_path / "out.json", "--page", page, "--plots", tmp_path / "plots"]
    more = ["--shared", shared, "--vectors", vectors, "--bert", bert, "--device", "cpu", "--only", "pos,scws"]
    monkeypatch.setattr(sys, "argv", ["family.py", *map(str, [elmo, *given, *files, *more])])
    family.main()
    out = capsys.readouterr().out
    rows = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["rows"]
    assert [f"{row['group']} {row['name']}" for row in rows] == [
        "ELMo 0 token", "ELMo 1 lstm1", "ELMo 2 lstm2", "ELMo mix", "static vectors", "static averages of ELMo",
        "BERT 0 embeddings", "BERT 1", "BERT 2", "BERT 3 second-to-last", "BERT 4 last", "BERT weighted-last-four",
        "BERT concat-last-four", "BERT weighted-all", "joined vectors + ELMo", "joined ELMo + BERT",
    ]  # fmt: skip
    assert all(0 <= row["pos"] <= 100 and -100 <= row["scws"] <= 100 for row in rows)
    assert "| 1 lstm1 |" in out
    written = page.read_text(encoding="utf-8")
    assert out.strip() in written
    assert "old" not in written
    assert written.endswith("after\n")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"family.svg", "family-layers.svg"}


def test_parts_side_by_side(family: ModuleType) -> None:
    rng = np.random.default_rng(0)
    layers = {"a": rng.normal(size=(5, 3, 4)).astype(np.float16), "b": rng.normal(size=(5, 1, 2)).astype(np.float16)}
    parts = (("a", "mix"), ("b", "0"))
    made = family.side_by_side(parts, layers, {("a", "mix"): (0.5, 0.5, 0.0)}, unit=False)
    np.testing.assert_allclose(made[:, :4], layers["a"][:, :2].mean(axis=1), atol=5e-3)
    np.testing.assert_array_equal(made[:, 4:], layers["b"][:, 0])
    unit = family.side_by_side(parts, layers, {}, unit=True)
    np.testing.assert_allclose(np.linalg.norm(unit.astype(float), axis=1), np.sqrt(2), atol=1e-2)
