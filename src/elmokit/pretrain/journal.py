"""What a run says while it runs: a progress line, `log.jsonl`, and TensorBoard where it is installed."""

import importlib.util
import json
import math
import os
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, TaskProgressColumn, TextColumn

from elmokit._bars import Bar
from elmokit._terminal import Console
from elmokit.config import Count, parse_json
from elmokit.errors import FormatError
from elmokit.formats.atomic import atomic_write


@dataclass(frozen=True, slots=True)
class _Line:
    """What every line of the log has."""

    step: Count


class Journal:
    """Loss, speed, perplexity and time left. A resumed run continues the log where its checkpoint was saved."""

    def __init__(self, folder: Path, title: str, *, step: int, show: bool = True) -> None:
        self.path = folder / "log.jsonl"
        _forget_after(self.path, step)
        self.file = self.path.open("a", encoding="utf-8")
        self.board: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        self.progress = bar("step {task.fields[step]:,}", "{task.fields[facts]}", "{task.fields[left]}", show=show)
        self.task = self.progress.add_task(title, total=1.0, step=step, facts="", left="")
        self.drawn, self.share, self.facts = 0.0, 0.0, ""

    def __enter__(self) -> "Journal":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.progress.update(self.task, completed=self.share, left="")
        self.progress.stop()
        self.file.close()
        if self.board is not None:
            self.board.close()

    def record(self, step: int, **facts: float) -> None:
        """One line of the log, and the same to TensorBoard."""
        clean = {name: value if math.isfinite(value) else str(value) for name, value in facts.items()}
        self.file.write(json.dumps({"step": step, "time": round(time.time(), 3), **clean}) + "\n")
        self.file.flush()
        if self.board is not None:
            for name, value in facts.items():
                self.board.add_scalar(name, value, step)

    def tick(self, step: int, share: float, left: float | None) -> None:
        """A step is done; `share` of the run, and seconds left where that is known."""
        self.share = share
        if self.progress.disable or time.monotonic() - self.drawn < 0.1:
            return
        self.drawn = time.monotonic()
        clock = "" if left is None else f"{timedelta(seconds=round(left))!s} left"
        self.progress.update(self.task, completed=share, step=step, left=clock)

    def show(self, facts: str) -> None:
        self.facts = facts
        self.progress.update(self.task, facts=facts)

    def validating(self, done: int, total: int) -> None:
        """How much of the held-out text is read."""
        facts = f"held-out text {done / total:.0%}" if done < total else self.facts
        self.progress.update(self.task, facts=facts)

    def say(self, text: str) -> None:
        if not self.progress.disable:
            self.progress.console.print(text, highlight=False, soft_wrap=True)


class Pace:
    """Seconds per step, measured once: some steps after the first ones, which take longer."""

    SKIPPED, MOST, SECONDS = 2, 30, 3.0  # steps not counted; measured are this many steps, or as many as take so long

    def __init__(self, step: int) -> None:
        self.seconds: float | None = None
        self._from, self._began = step + self.SKIPPED, 0.0

    def due(self, step: int) -> bool:
        """Whether `measure` wants to know that the device has come to this step."""
        n = step - self._from
        if n <= 0 or self.seconds is not None:
            return n == 0
        return n >= self.MOST or (n >= 2 and time.monotonic() - self._began >= self.SECONDS)

    def measure(self, step: int) -> bool:
        """To be called when the device has come to a step; True when `seconds` has become known."""
        n = step - self._from
        if n == 0:
            self._began = time.monotonic()
        if n <= 0 or not self.due(step) or self._began == 0.0:
            return False
        self.seconds = (time.monotonic() - self._began) / n
        return True


def bar(*texts: str, show: bool) -> Bar:
    """A progress bar on standard error, with texts behind it; short, so that the line fits 80 columns."""
    columns = (TextColumn("[bold]{task.description}"), BarColumn(bar_width=10), TaskProgressColumn())
    return Bar(*columns, *map(TextColumn, texts), console=Console(stderr=True), disable=not show)


def say(text: str, *, style: str | None = None) -> None:
    """A line on standard error, from the first of all processes."""
    if os.environ.get("RANK", "0") == "0":
        Console(stderr=True).print(text, style=style, highlight=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """A time to be read, such as `2 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _forget_after(path: Path, step: int) -> None:
    """Removes lines after the checkpoint that a run resumes from, which come again, and lines that are damaged."""
    if not path.exists():
        return
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            known = parse_json(line, _Line, source=str(path), ignore_unknown=True)
        except FormatError:  # the last one may be half written
            continue
        if known.step <= step:
            kept.append(line.rstrip(b"\r\n") + b"\n")
    with atomic_write(path) as file:
        file.writelines(kept)
