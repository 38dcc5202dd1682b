"""Ctrl-C, SIGTERM and a closed terminal: one line at once, the exit status that is documented, nothing spoilt."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit.__main__ import StoppedError, _Signals
from elmokit.encoders import Elmo
from elmokit.index import Index
from heard import heard_signals

Start = Callable[..., "subprocess.Popen[bytes]"]
KEPT = "finished files are kept, and the same command resumes an unfinished run"


def end(running: "subprocess.Popen[bytes]", number: int) -> tuple[int, str]:
    running.send_signal(number)
    _, said = running.communicate(timeout=180)
    return running.returncode, said.decode()


@pytest.fixture
def start(processes: "list[subprocess.Popen[bytes]]") -> Start:
    """Start a Python program that runs `elmokit ARGS...` after some preparation; it prints a line when it is there."""

    def run(prepare: str, *args: object) -> "subprocess.Popen[bytes]":
        code = f"import sys, time\n{prepare}\nsys.argv = ['elmokit', *{[*map(str, args)]!r}]\n"
        code += "from elmokit.__main__ import main\nmain()"
        pipe = subprocess.PIPE
        with heard_signals():
            running = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=pipe, stderr=pipe)
        processes.append(running)
        assert running.stdout is not None
        assert running.stdout.readline() == b"there\n", running.communicate()
        return running

    return run


WAITING = """
import elmokit.cli.inputs
def waiting(*args, **options):
    print("there", flush=True)
    time.sleep(600)
    yield from ()
elmokit.cli.inputs.read_inputs = waiting
"""


@pytest.mark.parametrize(
    ("name", "why", "status"),
    [
        ("SIGINT", "interrupted", 130),
        ("SIGTERM", "stopped by SIGTERM", 143),
        ("SIGHUP", "stopped by SIGHUP", 129),
    ],
)
def test_one_line_and_a_status(
    start: Start, model_folder: Path, tmp_path: Path, name: str, why: str, status: int
) -> None:
    running = start(WAITING, "embed", "-", "-m", model_folder, "-o", tmp_path / "out.h5")
    assert end(running, getattr(signal, name)) == (status, f"elmokit: {why}; {KEPT}\n")


def test_the_answer_comes_while_c_code_runs_and_a_second_signal_ends_it(
    start: Start, model_folder: Path, tmp_path: Path
) -> None:
    busy = WAITING.replace("time.sleep(600)", "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)")
    running = start(busy, "embed", "-", "-m", model_folder, "-o", tmp_path / "out.h5")
    assert running.stderr is not None
    running.send_signal(signal.SIGINT)
    assert running.stderr.readline().startswith(b"elmokit: interrupted")
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 130  # the C code would run for many minutes
    assert running.stderr.read() == b""
    running.communicate()


def test_a_signal_that_is_ignored_stays_ignored(start: Start, model_folder: Path, tmp_path: Path) -> None:
    nohup = WAITING.replace("time.sleep(600)", "time.sleep(1)") + "import signal; signal.signal(1, signal.SIG_IGN)"
    running = start(nohup, "embed", "-", "-m", model_folder, "-o", tmp_path / "out.h5")
    status, said = end(running, signal.SIGHUP)
    assert status == 0, said


def test_ctrl_c_while_the_graph_is_built(start: Start, tmp_path: Path) -> None:
    pytest.importorskip("usearch", reason="usearch is not installed: pip install 'elmokit[neighbours]'")
    elmo = Elmo(models.tiny().pretrained, device="cpu")
    rng = np.random.default_rng(0)
    index = Index.build(elmo, [["a", "few", "words"]] * 10, tmp_path / "index")
    index.make_graph(threads=1)
    index.grow(elmo, [[f"w{k}" for k in rng.integers(0, 3000, 40)] for _ in range(500)])
    before = {p.name: p.read_bytes() for p in index.folder.glob("graph*")}
    telling = """
import usearch.index
add = usearch.index.Index.add
def telling(*args, **options):
    print("there", flush=True)
    kept = [usearch.index.Index(ndim=12, metric="cos", dtype="i8") for _ in range(100)]  # none ends while it is stopped
    for one in kept:
        add(one, *args[1:], **options)
usearch.index.Index.add = telling
"""
    for wait in (0.05, 0.3):  # the library makes a RuntimeError of its own out of it
        running = start(telling, "index", "-o", index.folder)
        time.sleep(wait)
        assert end(running, signal.SIGINT) == (130, f"elmokit: interrupted; {KEPT}\n")
    kept: dict[str, Any] = {p.name: p.read_bytes() for p in index.folder.glob("graph*")}
    assert kept == before


def test_workers_end_quietly(start: Start, tmp_path: Path) -> None:
    """A forked worker that is terminated says nothing: the answers belong to the main process."""
    (tmp_path / "in.txt").write_text("text\n")
    forking = """
import os, signal, elmokit.cli.inputs
def forking(*args, **options):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"!")
        time.sleep(60)
    os.read(reading, 1)  # Python forgets a signal that comes while the child is not ready
    os.kill(child, signal.SIGTERM)
    print("there", flush=True)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    yield from ()
elmokit.cli.inputs.read_inputs = forking
"""
    running = start(forking, "embed", tmp_path / "in.txt", "-o", tmp_path / "out.npz")
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert b"stopped" not in said


def test_a_signal_that_does_not_end_a_wait() -> None:
    """One that came just before the wait began, or that another thread received: the main thread still stops."""
    reading, writing = os.pipe()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def receive() -> None:
        time.sleep(0.2)  # the main thread waits now
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    receiver = threading.Thread(target=receive)
    rescue = threading.Timer(30, os.write, (writing, b"x"))  # without the fix the read below would wait for ever
    try:
        with _Signals() as signals:
            receiver.start()
            rescue.start()
            with pytest.raises(StoppedError):
                os.read(reading, 1)
            assert set(signals.came) == {signal.SIGTERM}
            assert not rescue.finished.is_set()
    finally:
        rescue.cancel()
        for number, handler in before.items():  # they were left ignored, as at the end of a process
            signal.signal(number, handler)
        receiver.join()
        os.close(reading)
        os.close(writing)
