"""Output where a terminal or a file cannot hold every character: it is spelled out, and the command goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLD = Path(__file__).parents[1] / "data" / "v0.1.0"
MODEL = ("-m", str(OLD / "models/float32"))


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("ascii", "Zo\\xeb"), ("latin-1", "Zoë"), ("utf-8", "Zoë")],
    ids=["ascii", "latin-1", "utf-8"],
)
@pytest.mark.parametrize("words", [("predict", "The ___ sleeps."), ("embed", "-")], ids=["predict", "embed"])
def test_what_cannot_be_shown_is_spelled_out(words: tuple[str, ...], encoding: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "elmokit", *words, *MODEL],
        input="Zoë sees an owl .\n".encode(),
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert name in done.stdout.decode(encoding)
