"""`elmokit ... | head -1`: where standard output is closed, a command ends with status 1 and says nothing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OLD = Path(__file__).parents[1] / "data" / "v0.1.0"
TEXT = "The owl sleeps. The owl flies. An owl sleeps.\n"
MODEL = ("-m", "models/float32")
COMMANDS = [
    ("sample-text",),
    ("info", "models/int8"),
    ("info", "models/int8", "--json"),
    ("info", "vectors/out.h5"),
    ("verify", "models/int8", "index/exact"),
    ("embed", "The owl sleeps.", *MODEL),
    ("embed", "some.txt", *MODEL),
    ("compare", "The owl sleeps.", "An owl flies.", "--word", "owl", *MODEL),
    ("predict", "The ___ sleeps.", *MODEL),
    ("predict", "The ___ sleeps.", "--json", *MODEL),
    ("perplexity", "some.txt", *MODEL),
    ("apply", "tasks/ner", "Ann feeds the owl."),
    ("evaluate", "tasks/ner", "text/ner.txt"),
    ("mixes", "tasks/ner"),
    ("neighbors", "index/exact", "The owl sleeps.", "--word", "owl", *MODEL),
    ("senses", "some.txt", "--word", "owl", *MODEL),
    ("drift", "some.txt", "some.txt", *MODEL),
    ("embed", "--help"),
]
# All commands in one process, each with a pipe of its own that nobody reads.
PROGRAM = """
import contextlib, io, json, os, sys, warnings
warnings.simplefilter("ignore")
from elmokit.__main__ import main
found = []
for words in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    os.close(reading)
    said, sys.argv = io.StringIO(), ["elmokit", *words]
    sys.stdout = os.fdopen(writing, "w")
    try:
        with contextlib.redirect_stderr(said):
            main()
        status = 0
    except SystemExit as ended:
        status = ended.code
    except BaseException as error:
        status = repr(error)
    with contextlib.suppress(OSError):
        sys.stdout.close()
    found.append([words, status, said.getvalue()])
sys.stdout = sys.__stdout__
print(json.dumps(found))
"""


def test_every_command_that_prints(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "old")
    (tmp_path / "old" / "some.txt").write_text(TEXT * 40)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)],
        cwd=tmp_path / "old",
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words, status, said in json.loads(done.stdout):
        assert (status, "Traceback" in said, "elmokit:" in said) == (1, False, False), (words, status, said)


@pytest.mark.parametrize("words", [("--help",), ("sample-text",), ("embed", "The owl sleeps.")])
def test_the_end_of_the_process(words: tuple[str, ...], model_folder: Path) -> None:
    """Python itself would complain of what it cannot flush when it ends."""
    reading, writing = os.pipe()
    os.close(reading)
    given = (*words, "-m", str(model_folder)) if words[0] == "embed" else words
    try:
        done = subprocess.run(
            [sys.executable, "-m", "elmokit", *given], stdout=writing, stderr=subprocess.PIPE, timeout=300, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
