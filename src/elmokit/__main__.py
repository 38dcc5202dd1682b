"""The command line: an expected error is one line on standard error, never a traceback.

Exit status: 0 done; 1 standard output was closed, or a bug; 2 something to correct in what was given, or on the machine
(a full disk, a folder without permission); 130 Ctrl-C; 143 SIGTERM; 129 the terminal was closed.
"""

import codecs
import contextlib
import io
import os
import select
import signal
import sys
import threading
import warnings
from types import FrameType
from typing import Any, NoReturn

STOPPING = ("SIGINT", "SIGTERM", "SIGHUP")
INTERRUPTING = getattr(signal, "SIGURG", None) if hasattr(signal, "pthread_kill") else None
KEPT = "finished files are kept, and the same command resumes an unfinished run"


class StoppedError(BaseException):
    """A signal ended the run. Not a KeyboardInterrupt: libraries turn that into errors of their own."""


def main() -> None:
    """Run a command; the exit status is described above."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="elmokit")
    with _Signals() as signals, warnings.catch_warnings():
        try:
            from elmokit.cli import app
            from elmokit.errors import ElmokitWarning

            show = warnings.showwarning

            def say(message: Warning | str, category: type[Warning], *where: Any) -> None:
                if issubclass(category, ElmokitWarning):
                    _say(f"note: {message}")
                else:
                    show(message, category, *where)

            warnings.showwarning = say  # type: ignore[assignment]
            warnings.simplefilter("always", ElmokitWarning)
            app(prog_name="elmokit")
        except BaseException as error:
            from elmokit.errors import ElmokitError

            if signals.came:  # whatever a library has made of it
                signals.answer()
                sys.exit(128 + signals.came[0])
            if _was_interrupted(error):
                _stop(f"interrupted; {KEPT}", 130)
            if isinstance(error, ElmokitError):
                _stop(str(error), 2)
            if (
                isinstance(error, ModuleNotFoundError)
                and (missing := (error.name or "").partition(".")[0]) != "elmokit"
            ):
                _stop(f"elmokit needs {missing}, which is not installed; run  pip install {missing}", 2)
            if isinstance(error, OSError) and error.errno is not None:  # a full disk, a folder without permission
                _stop(f"{error.strerror}" + (f": {error.filename}" if error.filename else ""), 2)
            raise


class _Signals:
    """Stop at Ctrl-C, SIGTERM and SIGHUP with one line, said at once: Python itself would wait until C code returns.

    A second signal ends the process on the spot; files survive that as they survive a kill. Signals that are ignored
    (nohup, background jobs) stay ignored. `came` holds the numbers of those that came.

    A signal that arrives just before the main thread begins to wait (for a pipe, say), or that another thread receives,
    does not end that wait. The watcher therefore interrupts the main thread with SIGURG until its handler has run.
    """

    def __init__(self) -> None:
        self.came: list[int] = []
        self._answered = threading.Lock()
        self._raised = threading.Event()

    def __enter__(self) -> "_Signals":
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self._woken = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)
        numbers = [getattr(signal, name) for name in STOPPING if hasattr(signal, name)]
        self._before = {n: signal.signal(n, self._stop) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
        self._interrupted = signal.signal(INTERRUPTING, lambda *_: None) if INTERRUPTING else None
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.came else handler)  # the end is near: the status is settled
        self._before = {}
        self._raised.set()
        signal.set_wakeup_fd(self._woken)
        os.close(self._writing)  # ends the watcher
        self._watcher.join()
        os.close(self._reading)
        if INTERRUPTING:
            signal.signal(INTERRUPTING, self._interrupted)

    def answer(self) -> None:
        """The one line."""
        if not self._answered.acquire(blocking=False):
            return
        why = "interrupted" if self.came[0] == signal.SIGINT else f"stopped by {signal.Signals(self.came[0]).name}"
        clear = "\r\x1b[2K" if sys.stderr.isatty() else ""  # a progress bar may stand on this line
        _say(f"{why}; {KEPT}", before=clear)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.came.append(number)
        if not self._raised.is_set():  # once: another signal must not break the clearing up
            self._raised.set()
            raise StoppedError

    def _watch(self) -> None:
        again = False
        while True:
            while again and not self._raised.is_set() and not select.select([self._reading], [], [], 0.1)[0]:
                if INTERRUPTING:
                    signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPTING)
            if not (data := os.read(self._reading, 1)):
                return
            handler = signal.getsignal(data[0])
            if handler != self._stop:
                if answer := getattr(handler, "answer", None):  # pre-training has an answer of its own
                    answer(data[0])
                continue
            if again:
                os._exit(128 + data[0])
            self.came.append(data[0])
            self.answer()
            again = True

    def _in_child(self) -> None:
        """A worker's signals are its own: they end it as they end any process."""
        if self._before:
            signal.set_wakeup_fd(-1)
            for number in self._before:
                signal.signal(number, signal.SIG_DFL)


def _shown(error: UnicodeError) -> tuple[str | bytes, int]:
    """What a terminal or a file of another encoding cannot hold is spelled out; bytes go out as they came in."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


codecs.register_error("elmokit", _shown)


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C stands behind it: typer turns that into an exit of its own, one or another by version."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _say(message: str, *, before: str = "") -> None:
    with contextlib.suppress(OSError, ValueError):  # standard error may be closed
        message = " ".join(message.split())
        if not message.isprintable() and sys.stderr.isatty():
            from elmokit._terminal import visible

            message = visible(message)
        print(f"{before}elmokit: {message}", file=sys.stderr, flush=True)


def _stop(message: str, status: int) -> NoReturn:
    _say(message)
    sys.exit(status)


if __name__ == "__main__":
    main()
