"""A bar for work that can be counted, on standard error and only where someone looks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar while the block runs; what it gives is called with how much is done, of how much."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def reading(what: str, *, total: int | None) -> Iterator["ReadingBar"]:
    """A bar for work that follows its input: share done, sentences, their rate, time left. `total` is in bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    console = Console(stderr=True)
    shown = TextColumn("{task.fields[pace]}")
    share = () if total is None else (BarColumn(), TaskProgressColumn())
    columns = TextColumn(what), *share, shown
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ReadingBar(progress, total)


class ReadingBar:
    """The bar of `reading`. What an earlier run has done counts for the share, but not for rate and time left."""

    def __init__(self, progress: "Progress", total: int | None) -> None:
        self._progress, self._total = progress, total
        self._task = progress.add_task("", total=total, pace="")
        self._begin = time.monotonic(), 0, 0

    def update(self, consumed: int, sentences: int, *, done: bool) -> None:
        """So many bytes are read, so many sentences are done; `done`: by an earlier run."""
        if done:
            self._begin = time.monotonic(), consumed, sentences
        pace = describe_pace(self._begin, (time.monotonic(), consumed, sentences), self._total)
        self._progress.update(self._task, completed=consumed, pace=pace)

    def say(self, line: str) -> None:
        """A line of text, above the bar where there is one."""
        import typer

        if self._progress.disable:
            typer.echo(line, err=True)
        else:
            self._progress.console.print(line, highlight=False, markup=False)


def describe_pace(begin: tuple[float, int, int], now: tuple[float, int, int], total: int | None) -> str:
    """Sentences done, how many a second, and the time left; each point is (seconds, bytes, sentences)."""
    seconds, consumed, sentences = (b - a for a, b in zip(begin, now, strict=True))
    parts = [f"{now[2]:,} sentences"]
    if seconds > 0 and sentences:
        parts.append(f"{sentences / seconds:,.0f}/s")
        if total is not None and consumed > 0:
            parts.append(f"{_clock((total - now[1]) * seconds / consumed)} left")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
