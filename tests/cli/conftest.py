"""A small model on disk, and the command line as a user meets it."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import models
from elmokit.__main__ import main
from elmokit.weights import save_pretrained
from heard import heard_signals


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(models.tiny().pretrained, tmp_path_factory.mktemp("model"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run `elmokit ARGS...` in this process."""

    def run(*args: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["elmokit", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    return run


@pytest.fixture
def processes() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Processes that end with the test: what still runs is killed, and all pipes are closed."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for running in started:
        running.kill()
        running.wait()
        for pipe in (running.stdin, running.stdout, running.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not flushed has no reader any more
                    pipe.close()


@pytest.fixture
def process(processes: "list[subprocess.Popen[bytes]]") -> Callable[..., "subprocess.Popen[bytes]"]:
    """Start `elmokit ARGS...` as a process of its own."""

    def start(*args: object) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "elmokit", *map(str, args)]
        pipe = subprocess.PIPE
        with heard_signals():
            processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe))
        return processes[-1]

    return start
