"""Without an optional library the message holds the line that installs it, before any work is done."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


def test_parquet_without_pyarrow_is_told_before_embedding(
    cli: Cli, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    done = cli("embed", "Some text.", "-m", model_folder, "-o", tmp_path / "out.parquet")
    assert done.code == 2
    assert "pip install 'elmokit[parquet]'" in done.err
    assert not list(tmp_path.iterdir())
