"""Runs an app on a socket until a signal comes; then what is under way is finished."""

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from elmokit.errors import InputError
from elmokit.server.protocol import BoundedHttp
from elmokit.server.service import Service

LINGER = 1.0  # seconds that open connections have for one more request, whose answer then closes them
TRIM = 10.0  # seconds after which memory that batches have left free goes back to the system
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to this address; nobody can connect before `run_app` listens on it."""
    try:
        (family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # asyncio sends at once, without Nagle's delay, where the protocol is named
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as wrong:
        raise InputError(f"host {host!r} is no address of this machine ({wrong.strerror})") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as wrong:
        made.close()
        raise InputError(f"{host}:{port} cannot be listened on ({wrong.strerror}); choose another --port") from None
    made.set_inheritable(True)
    made.setblocking(False)  # for good: workers share it, and one that waits in accept() answers nobody
    return made


def address_of(bound: socket.socket) -> str:
    """http://HOST:PORT"""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_app(
    app: FastAPI, service: Service, bound: socket.socket, *, on_start: Callable[[], None] = lambda: None
) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP comes or `app.state.stop()` is called.

    Then it takes no new connections, answers what is under way and returns. A second signal ends the process at once.
    `on_start` is called when requests can be sent.
    """
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=max(int(service.settings.grace), 1),
        timeout_keep_alive=75,
    )
    server = _Server(config, service, on_start)
    app.state.stop = server.stop
    try:
        server.run(sockets=[bound])
    finally:
        service.close()
        bound.close()


class _Server(uvicorn.Server):
    """uvicorn's server with an end of our own."""

    def __init__(self, config: uvicorn.Config, service: Service, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.service, self.on_start = service, on_start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._trimming = asyncio.ensure_future(_trim_often())  # kept, or it might be collected
        self.on_start()

    def stop(self) -> None:
        """Begins the end; from any thread."""
        if self._loop is not None and not self._stopping:
            self._stopping = True
            self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._drain()))

    async def _drain(self) -> None:
        """Nobody new; those connected get their answers, with Connection: close."""
        self.service.stopping, self.service.ready = True, False
        for server in self.servers:
            server.close()
        ends = asyncio.get_running_loop().time() + LINGER
        while self.server_state.connections and asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(0.02)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Instead of uvicorn's, which raise the signal once more at the end: here the end is a good one."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = _Stop(self.stop, worker=self.service.settings.workers > 1)
        before: dict[int, Any] = {
            n: signal.signal(n, handler) for n in SIGNALS if signal.getsignal(n) != signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, old in before.items():
                signal.signal(number, old)


async def _trim_often() -> None:
    """Batches of all sizes leave gaps in memory, in which the next ones do not fit: without this it grows for long."""
    while True:
        await asyncio.sleep(TRIM)
        await asyncio.to_thread(give_back)


def give_back() -> None:
    """Memory that is free goes back to the system, where its C library can do so (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class _Stop:
    """What a signal does: the first begins the end, the second is the end.

    Ctrl-C reaches the workers as well as their parent, which then tells them to stop: a worker hears two signals for
    one. Its parent is the one to end it at once.
    """

    def __init__(self, stop: Callable[[], None], *, worker: bool) -> None:
        self.stop, self.worker, self.came = stop, worker, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.came:
            if self.worker:
                return
            os._exit(128 + number)
        self.came = True
        with suppress(OSError, ValueError):
            print("elmokit: stopping; requests under way are finished", file=sys.stderr, flush=True)
        self.stop()
