"""Control characters in a text do not reach the terminal; in files, pipes and JSON they stay."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.testing import CliRunner

from elmokit._terminal import Console, visible
from elmokit.cli import app
from elmokit.cli.show import table_of

HOSTILE = "red\x1b[31m bell\x07 csi\x9b31m del\x7f"
SIGNS = "red␛[31m bell␇ csi\ufffd31m del␡"


def test_signs_for_control_characters() -> None:
    assert visible(HOSTILE) == SIGNS
    assert visible("a\tb\n\u200b日本 é") == "a\tb\n\u200b日本 é"


@pytest.mark.parametrize("shown", [HOSTILE, Text(HOSTILE), table_of(["word"], [[HOSTILE]])])
def test_a_console_shows_signs_on_a_terminal_only(shown: Any) -> None:
    for terminal in (True, False):
        file = io.StringIO()
        Console(file=file, force_terminal=terminal, color_system=None, width=60).print(shown)
        assert ("\x1b" in file.getvalue()) != terminal
        assert ("red␛[31m" in file.getvalue()) == terminal


def test_styles_stay() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", legacy_windows=False)
    console.print("[red]a\x1b[2J[/red]", highlight=False)
    assert file.getvalue() == "\x1b[31ma␛[2J\x1b[0m\n"


def on_a_terminal(*command: str) -> str:
    """What a command writes to a terminal, standard output and standard error together."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    found = b""
    with subprocess.Popen([sys.executable, "-m", "elmokit", *command], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            while data := os.read(ours, 1 << 16):
                found += data
        except OSError:  # how a terminal ends
            pass
        finally:
            os.close(ours)
            process.wait(timeout=120)
    return found.decode()


def test_commands_on_a_terminal(tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_text(f"{HOSTILE}\n", encoding="utf-8")
    for command in (["tokenize"], ["tokenize", "--json"], ["apply", "pos"], ["apply", "pos", "--conll"]):
        shown = on_a_terminal(*command, str(given))
        assert "red" in shown
        for harm in ("\x1b[31m", "\x07", "\x9b", "\x7f"):
            assert harm not in shown, command
    assert "␛[2Jgone" in on_a_terminal("embed", str(tmp_path / "\x1b[2Jgone.txt"))


def test_files_and_pipes_are_exact(tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_text(f"{HOSTILE}\n", encoding="utf-8")
    plain = CliRunner().invoke(app, ["tokenize", str(given)])
    assert plain.output.replace(" ", "") == f"{HOSTILE}\n".replace(" ", "")
    found = CliRunner().invoke(app, ["tokenize", "--json", str(given)])
    assert "".join(json.loads(found.output)["tokens"]) == HOSTILE.replace(" ", "")
