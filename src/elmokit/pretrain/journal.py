"""What a run says while it runs: a progress line, `log.jsonl`, and TensorBoard where it is installed."""

import importlib.util
import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Journal:
    """Speed, loss, perplexity and time left; a resumed run goes on where its last checkpoint was."""

    def __init__(self, folder: Path, title: str, *, total: int, step: int, show: bool = True) -> None:
        self.path = folder / "log.jsonl"
        self.console = Console(stderr=True)
        _forget_after(self.path, step)
        self.file = self.path.open("a", encoding="utf-8")
        self.board: Any = None
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[facts]}"),
        )
        left = TimeRemainingColumn(compact=True, elapsed_when_finished=True)  # short: the line fits 80 columns
        self.progress = Progress(*columns, left, console=self.console, disable=not show)
        self.task = self.progress.add_task(title, total=total, completed=step, facts="")

    def __enter__(self) -> "Journal":
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def show(self, step: int, facts: str, *, total: int | None = None) -> None:
        self.progress.update(self.task, completed=step, facts=facts, total=total)

    def say(self, text: str) -> None:
        if not self.progress.disable:
            self.progress.console.print(text, highlight=False, soft_wrap=True)


def _forget_after(path: Path, step: int) -> None:
    """Lines after the checkpoint that a run goes on from would stand twice; a half-written last line goes too."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError):
            continue
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
    temporary.replace(path)
