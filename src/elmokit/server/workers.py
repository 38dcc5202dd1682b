"""Several processes behind one socket. The models are loaded once; workers are forks, which share the memory of the
weights until they write to it, and nothing does. A worker that dies is replaced by another fork.
"""

import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from elmokit.errors import ElmokitError, InputError

TICK = 0.1  # seconds
PROMETHEUS = "PROMETHEUS_MULTIPROC_DIR"
MOST_FAILURES = 5  # workers in a row that end before they are ready


@contextmanager
def counted_together() -> Iterator[None]:
    """Lets the workers' metrics be added up; before prometheus_client is imported."""
    if PROMETHEUS in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="elmokit-metrics-") as folder:
        os.environ[PROMETHEUS] = folder
        try:
            yield
        finally:
            del os.environ[PROMETHEUS]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Forks `number` processes that each call `work(ready)`, and keeps that many until a signal comes."""

    def __init__(self, work: Callable[[Callable[[], None]], None], number: int) -> None:
        if not hasattr(os, "fork"):
            raise InputError(f"--workers {number}: this system cannot fork processes; use 1")
        self.work, self.number = work, number
        self.alive: dict[int, bool] = {}  # process to whether it is ready
        self.stopping = False
        self.failures = 0
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)

    def run(self, on_start: Callable[[], None]) -> None:
        """Returns when all workers have ended after a signal. `on_start` is called when all are ready."""
        gc.collect()
        gc.freeze()  # so that collecting garbage writes to no shared page
        before = {n: signal.signal(n, self._signal) for n in _signals()}
        told = False
        try:
            while not self.stopping or self.alive:
                while not self.stopping and len(self.alive) < self.number:
                    self._fork()
                self._reap()
                self._hear()
                if not told and len(self.alive) == self.number and all(self.alive.values()):
                    told = True
                    on_start()
                time.sleep(TICK)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._kill(signal.SIGKILL)
            os.close(self._reading)
            os.close(self._writing)

    def _fork(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, _signals())  # until the worker is known, and has its own
        try:
            if not (pid := os.fork()):
                self._child(signals)
            self.alive[pid] = False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)

    def _child(self, signals: "set[signal.Signals | int]") -> NoReturn:
        status = 1
        try:
            for number in _signals():
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            os.close(self._reading)
            self.work(lambda: _ignore(os.write(self._writing, os.getpid().to_bytes(8, "little"))))
            status = 0
        except ElmokitError as wrong:
            print(f"elmokit: {wrong}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os._exit(status)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self._reading, 8):
                pid = int.from_bytes(data, "little")
                if pid in self.alive:
                    self.alive[pid] = True
                    self.failures = 0

    def _reap(self) -> None:
        while self.alive:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._hear()
            ready = self.alive.pop(pid, True)
            _forget(pid)
            if self.stopping:
                continue
            code = os.waitstatus_to_exitcode(status)
            name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
            why = f"by {name}" if code < 0 else f"with status {code}"
            print(f"elmokit: worker {pid} ended {why}; starting another", file=sys.stderr, flush=True)
            self.failures += not ready
            if self.failures >= MOST_FAILURES:
                self._kill(signal.SIGKILL)
                raise ElmokitError(f"{self.failures} workers in a row ended before they were ready; see above")

    def _signal(self, number: int, frame: FrameType | None) -> None:
        if self.stopping:
            self._kill(signal.SIGKILL)
            os._exit(128 + number)
        self.stopping = True
        self._kill(signal.SIGTERM)

    def _kill(self, number: int) -> None:
        for pid in list(self.alive):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def end_with_parent(stop: Callable[[], None]) -> None:
    """Calls `stop` when the process that forked this one is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        stop()

    threading.Thread(target=watch, name="elmokit-parent", daemon=True).start()


def listen_again(bound: socket.socket) -> socket.socket:
    """The same socket for a worker to close; the parent keeps its own."""
    return bound.dup()


def _forget(pid: int) -> None:
    if PROMETHEUS in os.environ:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(pid)  # type: ignore[no-untyped-call]


def _signals() -> list[int]:
    found = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in found if signal.getsignal(number) != signal.SIG_IGN]


def _ignore(_: Any) -> None:
    return None
