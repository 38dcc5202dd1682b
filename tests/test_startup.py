"""What is asked for is what is loaded: the command line's help and a bare import stay light."""

import subprocess
import sys

import pytest

HEAVY = {
    "torch",
    "numpy",
    "h5py",
    "safetensors",
    "huggingface_hub",
    "transformers",
    "pyarrow",
    "sklearn",
    "tensorboard",
    "usearch",
    "fastapi",
    "uvicorn",
}
COMMANDS = (
    "embed",
    "elmo",
    "compare",
    "perplexity",
    "predict",
    "convert",
    "export",
    "info",
    "pretrain",
    "finetune",
    "index",
    "neighbors",
    "drift",
    "align",
    "tokenize",
    "serve",
)


def loaded(code: str, *arguments: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded at its end."""
    tell = "import atexit, sys; atexit.register(lambda: print('\\n' + ' '.join(sys.modules), file=sys.stderr)); "
    done = subprocess.run([sys.executable, "-c", tell + code, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.splitlines()[-1].split()}


def test_importing_elmokit_is_light() -> None:
    found = loaded("import elmokit")
    assert "elmokit" in found
    assert not found & (HEAVY | {"typer", "rich"})


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_light(command: str) -> None:
    found = loaded("from elmokit.__main__ import main; main()", *command.split(), "--help")
    assert "typer" in found
    assert not found & HEAVY


def test_a_name_loads_its_home_when_it_is_first_used() -> None:
    assert "torch" in loaded("import elmokit; elmokit.Elmo")
    assert "torch" not in loaded("import elmokit; elmokit.Sentence")
