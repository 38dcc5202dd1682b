"""`elmokit verify`: what is whole is said to be, and a flipped bit anywhere is one line and status 2."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.encoders.static.table import WordTable
from elmokit.weights import save_pretrained

OLD = Path(__file__).parents[1] / "data" / "v0.1.0"


def flip(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * share)] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_models_and_static_vectors(cli: Callable[..., Any], tmp_path: Path, share: float) -> None:
    folder = save_pretrained(models.tiny().pretrained, tmp_path / "model", dtype="int8")
    table = WordTable(["a", "b"], np.eye(2, 500, dtype=np.float32)).save(tmp_path / "table.safetensors")
    official = save_pretrained(models.tiny().pretrained, tmp_path / "official", format="official")
    said = cli("verify", folder, table, official).out
    assert said.splitlines() == [
        f"{folder}: as it was written (model)",
        f"{table}: as it was written (static vectors)",
        f"{official}: whole; a model of the official format, which has no checksums",
    ]
    flip(folder / "model.safetensors", share)
    flip(table, share)
    for path in (folder, table):
        failed = cli("verify", path)
        assert failed.code == 2
        assert re.search("not as|not a whole", failed.err)
        assert failed.err.count("\n") == 1
    assert "no such file" in cli("verify", tmp_path / "nowhere").err


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("models/int8", "as it was written (model)"),
        ("static/table.safetensors", "whole, but 0.1.0 wrote no checksums for all of it (static vectors)"),
        ("onnx/float32", "whole, but 0.1.0 wrote no checksums for all of it (exported model)"),
        ("index/exact", "whole, but 0.1.0 wrote no checksums for all of it (index)"),
        ("tasks/tag", "as it was written (task model)"),
        ("unfinished/prepared", "as it was written (prepared corpus)"),
    ],
)
def test_what_0_1_0_wrote(cli: Callable[..., Any], tmp_path: Path, path: str, kind: str) -> None:
    shutil.copytree(OLD, tmp_path / "old")
    assert cli("verify", tmp_path / "old" / path).out == f"{tmp_path / 'old' / path}: {kind}\n"
