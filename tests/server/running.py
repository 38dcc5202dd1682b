"""The real server on loopback: in a thread of this process, or as a process of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from elmokit.kernels.cpu.c import c_library
from elmokit.server import Service, address_of, bind, create_app, run_app

PATIENCE = 120.0  # seconds; a slow machine must not fail a test


class Running:
    """A server in a thread, and a client for it."""

    def __init__(self, service: Service, **options: Any) -> None:
        self.service, self.bound = service, bind("127.0.0.1", 0)
        self.url = address_of(self.bound)
        service.warm_up()
        self.app = create_app(service, **options)
        started = threading.Event()
        self.thread = threading.Thread(
            target=run_app, args=(self.app, service, self.bound), kwargs={"on_start": started.set}, daemon=True
        )
        self.thread.start()
        assert started.wait(PATIENCE)
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)

    def close(self) -> None:
        self.http.close()
        self.app.state.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Process:
    """`elmokit serve` as a user starts it."""

    def __init__(self, log: Path, *args: object, **variables: str) -> None:
        self.log = log
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with log.open("wb") as file:
                self.popen = subprocess.Popen(
                    [sys.executable, "-m", "elmokit", "serve", "--port", "0", *map(str, args)],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
        finally:
            signal.signal(signal.SIGINT, before)
        self.url = self._address()

    def _address(self) -> str:
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends and self.popen.poll() is None:
            if found := re.search(r" on (http://\S+)", self.said):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"the server did not start: {self.said}")

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait(self) -> int:
        return self.popen.wait(PATIENCE)

    def kill(self) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(PATIENCE)


def same(found: Any, expected: Any) -> bool:
    """Bit for bit where the model runs in C; torch's own kernels may round otherwise in another batch."""
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    if c_library() is None:
        return found.shape == expected.shape and np.allclose(found, expected, rtol=1e-4, atol=1e-6)
    return np.array_equal(found, expected)


def until(condition: Callable[[], Any], *, seconds: float = PATIENCE) -> None:
    """Waits for something to become true."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.02)
