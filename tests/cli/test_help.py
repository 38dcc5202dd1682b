"""The help of every command reads well in a terminal of 80 columns."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import typer

from elmokit.cli import GROUPS
from elmokit.tasks.catalogue import CATALOGUE

Cli = Callable[..., Any]
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
DOCSTRINGS = {name: c.__doc__ or "" for name, c in COMMANDS.items() if not isinstance(c, typer.Typer)}


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


def test_options_are_described_in_words(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = cli("embed", "--help").out
    assert "  --layers TEXT " in text
    assert not re.search(
        r"<(str|int|float|path|list)", text + cli("convert", "--help").out + cli("serve", "--help").out
    )


def test_all_commands_are_shown_in_groups_with_whole_sentences(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = cli("--help").out
    assert max(map(len, shown.splitlines())) <= 80
    for title, group in GROUPS.items():
        own = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        words = " ".join(own.split())
        for name, command in group.items():
            sentence = words.partition(f"{name} ")[2]
            assert sentence, name
            if name in DOCSTRINGS:
                first = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
                assert first.endswith(".")
                assert sentence.startswith(first)
    assert "..." not in shown.partition("Options:")[2]  # nothing is cut


@pytest.mark.parametrize("task", CATALOGUE)
@pytest.mark.parametrize("command", ["train", "ablate"])
def test_help_of_tasks_fits(command: str, task: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = cli(command, task, "--help")
    assert shown.code == 0
    prose = [line for line in shown.out.splitlines() if not line.startswith("      ")]
    assert max(map(len, prose)) <= 80
    assert "--layers" not in shown.out.replace("--elmo-layers", "").replace("--lstm-layers", "")
