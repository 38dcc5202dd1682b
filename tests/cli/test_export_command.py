"""`elmokit export`."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit import Elmo

pytest.importorskip("onnx", reason="needs the onnx extra")
pytest.importorskip("onnxruntime", reason="needs the onnx extra")

Cli = Callable[..., Any]


def test_export_and_run(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    from elmokit.integrations.onnx import OnnxElmo

    done = cli("export", model_folder, "-o", tmp_path / "made")
    assert done.code == 0, done.err
    assert "its vectors differ from the model's by at most" in done.err
    expected = Elmo.from_pretrained(model_folder).encode("The same vectors.")
    assert OnnxElmo(tmp_path / "made", threads=1).encode("The same vectors.") == pytest.approx(expected, abs=1e-5)
    again = cli("export", model_folder, "-o", tmp_path / "made")
    assert (again.code, "an exported model is there already" in again.err) == (2, True)
    other = cli("export", model_folder, "-o", model_folder, "--overwrite")
    assert (other.code, "holds something other than an exported model" in other.err) == (2, True)
    small = cli("export", model_folder, "-o", tmp_path / "made", "--dtype", "int8", "--overwrite")
    assert small.code == 0
    assert "the worst cosine is 0.999" in small.err


def test_what_does_not_go_together(cli: Cli, model_folder: Path, tmp_path: Path) -> None:
    done = cli("export", model_folder, "-o", tmp_path / "made", "--to", "torch", "--dtype", "int8")
    assert done.code == 2
    assert "--dtype int8 is for --to onnx" in done.err


def test_without_onnx(cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "elmokit.export._onnx_graph", raising=False)
    monkeypatch.delitem(sys.modules, "elmokit.export._onnx_bilm", raising=False)
    done = cli("export", model_folder, "-o", tmp_path / "made")
    assert done.code == 2
    assert "pip install 'elmokit[onnx]'" in done.err
    assert not (tmp_path / "made").exists()
