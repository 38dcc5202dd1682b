"""Signals in the processes that tests start."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heard_signals() -> Iterator[None]:
    """Processes started inside hear Ctrl-C and SIGHUP, though tests in the background (nohup) ignore them."""
    before = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
