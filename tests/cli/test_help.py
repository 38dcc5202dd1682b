"""The help of every command reads well in a terminal of 80 columns."""

from collections.abc import Callable
from typing import Any

import pytest

from elmokit.cli import app

Cli = Callable[..., Any]
DOCSTRINGS = {c.callback.__name__: c.callback.__doc__ or "" for c in app.registered_commands if c.callback}


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_help_fits_and_keeps_its_examples(name: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = [line.rstrip() for line in cli(name, "--help").out.splitlines()]
    assert max(map(len, shown)) <= 80
    examples = [line.strip() for line in DOCSTRINGS[name].splitlines() if line.startswith("        ")]
    assert any(line.startswith(f"elmokit {name} ") for line in examples)
    stripped = [line.strip() for line in shown]
    missing = [line for line in examples if line and line not in stripped]
    assert not missing, "lines of more than 74 characters are wrapped, and an example needs prose around it"
