"""Output where a terminal or a file cannot hold every character: it is spelled out, and the command goes on.

Arguments are UTF-8 whatever the locale.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}


def run(*words: str | bytes, env: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[bytes]":
    given = [word.encode() if isinstance(word, str) else word for word in words]  # UTF-8, whatever runs the tests
    command = [sys.executable, "-m", "elmokit", *given]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, timeout=300, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are no bytes there")
@pytest.mark.parametrize("words", [("tokenize", "Zoë sees an owl ."), ("embed", *MODEL, "Zoë sees an owl .")])
def test_arguments_are_utf_8_in_every_locale(words: tuple[str, ...], tmp_path: Path) -> None:
    usual = run(*words, env={**os.environ, "PYTHONUTF8": "1"}, folder=tmp_path)
    there = run(*words, env=ASCII, folder=tmp_path)
    assert (there.returncode, there.stdout, there.stderr) == (usual.returncode, usual.stdout, usual.stderr)
    assert (usual.returncode, "Zoë".encode() in usual.stdout) == (0, True)


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are no bytes there")
@pytest.mark.parametrize("env", [ASCII, {**os.environ, "PYTHONUTF8": "1"}], ids=["ascii", "utf-8"])
def test_names_of_files_in_every_locale(env: dict[str, str], tmp_path: Path) -> None:
    for name in ("Zoë.txt".encode(), b"Zo\xeb.txt"):
        (tmp_path / os.fsdecode(name)).write_text("An owl .\n")
        done = run("embed", *MODEL, name, "-o", name.replace(b"txt", b"h5"), env=env, folder=tmp_path)
        assert (done.returncode, b": 1 sentence, 3 tokens" in done.stderr) == (0, True), done.stderr
        assert (tmp_path / os.fsdecode(name)).with_suffix(".h5").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are no bytes there")
def test_what_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    done = run("tokenize", b"Zo\xeb sees an owl .", env=ASCII, folder=tmp_path)
    expected = b"elmokit: 'Zo\\xeb sees an owl .' is not UTF-8; expected text in UTF-8, or a file that is there\n"
    assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.parametrize(
    "words",
    [
        ("perplexity", "in.txt", *MODEL),
        ("elmo", "in.txt", "out.hdf5", "--top", "--options-file", MODEL[1]),
        ("manylangs", "--input", "in.txt", "--model", MODEL[1], "--output_prefix", "out"),
    ],
    ids=["perplexity", "elmo", "manylangs"],
)
def test_bytes_that_are_not_utf_8_are_told(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    for encoding, told in (("latin-1", True), ("utf-8", False)):
        Path("in.txt").write_bytes("Zoë sees\tan owl\nCafé\n".encode(encoding))
        done = cli(*words)
        assert done.code == 0, done.err
        assert ("bytes that are not UTF-8: 2 (read as U+FFFD)" in done.err) == told
