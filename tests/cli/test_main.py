"""The command line as a whole."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import elmokit

Cli = Callable[..., Any]
HEAVY = ("torch", "numpy", "h5py", "safetensors", "huggingface_hub", "pyarrow")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['elmokit', '--help']\n"
        "from elmokit.__main__ import main\n"
        "try: main()\n"
        f"finally: print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    assert "embed" in done.stdout


def test_every_command_explains_itself(cli: Cli) -> None:
    from elmokit.cli import app

    names = [str(command.name) for command in app.registered_commands]
    assert {"embed", "compare"} <= set(names)
    for name in names:
        shown = cli(name, "--help")
        assert shown.code == 0
        assert f"elmokit {name} " in shown.out.split("Arguments")[0].partition("Usage")[2].partition("\n")[2], name


def test_version_and_no_arguments(cli: Cli) -> None:
    assert cli("--version").out == elmokit.__version__ + "\n"
    shown = cli()
    assert "Usage: elmokit" in shown.out + shown.err


def test_usage_errors_exit_with_2(cli: Cli) -> None:
    assert cli("embed").code == 2
    assert cli("nonsense").code == 2


def test_public_names_are_there() -> None:
    for name in elmokit.__all__:
        assert getattr(elmokit, name) is not None
    assert {*dir(elmokit), "__version__"} == {*elmokit.__all__}


def test_sample_text_is_a_corpus(cli: Cli) -> None:
    shown = cli("sample-text")
    words = shown.out.split()
    assert shown.code == 0
    assert 2500 < len(words) < 4000
    assert all(len(line.split()) > 40 for line in shown.out.splitlines())  # a paragraph a line
    for word in ("bank", "play", "cell", "spring"):
        assert sum(w.strip(".,:;?!'").casefold() == word for w in words) >= 15
    (line,) = elmokit_out("sample-text", "|", "head", "-n", "1").splitlines()
    assert line == shown.out.splitlines()[0]


def elmokit_out(*args: str) -> str:
    """What a pipe that ends early shows; nothing may be said about it."""
    command = f"{sys.executable} -m elmokit {' '.join(args)}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout
