"""A bar for work that can be counted, on standard error and only where someone looks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

if TYPE_CHECKING:
    from elmokit.formats import ReadReport
    from elmokit.integrations.ray import RunReport
    from elmokit.text import Sentence


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar while the block runs; what it gives is called with how much is done, of how much."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from elmokit._bars import Bar
    from elmokit._terminal import Console

    console = Console(stderr=True)
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


@contextmanager
def adding(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """The same; what it gives is called with how much more is done."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        told(done, total)

    with counting(what) as told:
        yield add


class Report(Protocol):
    """What a run that reads sentences says of itself."""

    sentences: int
    resumed_at: int


@contextmanager
def embedding(
    inputs: Sequence[str],
    output: Path,
    read: "ReadReport",
    *,
    what: str = "embedding",
    unit: str = "sentences",
) -> Iterator[Callable[[Report], None]]:
    """A bar while inputs are embedded, or worked on otherwise: share done, sentences, their rate, time left.

    What this gives is called when the work begins and after each part. An unfinished run says where it resumes; what it
    had done counts for the share, but not for rate and time left.
    """
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn

    from elmokit._bars import Bar
    from elmokit._terminal import Console
    from elmokit.cli.inputs import measure_inputs

    total = measure_inputs(inputs)  # bytes
    console = Console(stderr=True)
    share = () if total is None else (BarColumn(), TaskProgressColumn())
    columns = TextColumn(what), *share, TextColumn("{task.fields[pace]}")
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total, pace="")
        begin = time.monotonic(), 0, 0

        def told(report: Report) -> None:
            nonlocal begin
            now = time.monotonic(), read.consumed, report.sentences
            if report.sentences <= report.resumed_at:
                begin = now
            if report.resumed_at and not report.sentences:
                line = f"{output}: resuming after {report.resumed_at:,} {unit}"
                typer.echo(line, err=True) if progress.disable else progress.console.print(line, highlight=False)
            progress.update(task, completed=read.consumed, pace=describe_pace(begin, now, total, unit))

        yield told


@dataclass
class Taken:
    """A `Report` of sentences that are taken from the first on."""

    sentences: int = 0
    resumed_at: int = 0


def watched(sentences: "Iterable[Sentence]", text: str, read: "ReadReport") -> "Iterator[Sentence]":
    """The sentences of a text as they are, with a bar while they are taken; `read` is the report of their reader."""
    taken = Taken()
    with embedding([text], Path(text), read) as told:
        for taken.sentences, sentence in enumerate(sentences, 1):
            told(taken)
            yield sentence


def describe_pace(
    begin: tuple[float, int, int], now: tuple[float, int, int], total: int | None, unit: str = "sentences"
) -> str:
    """Sentences done, how many a second, and the time left; each point is (seconds, bytes, sentences)."""
    seconds, consumed, sentences = (b - a for a, b in zip(begin, now, strict=True))
    parts = [f"{now[2]:,} {unit}"]
    if seconds > 0 and sentences:
        parts.append(f"{sentences / seconds:,.0f}/s")
        if total is not None and consumed > 0:
            parts.append(f"{_clock((total - now[1]) * seconds / consumed)} left")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    whole = max(round(seconds), 0)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def tell_parts() -> "Callable[[RunReport], None]":
    """Prints a line after each part: parts, words, words a second, time left."""
    began: tuple[float, int] | None = None

    def told(report: "RunReport") -> None:
        nonlocal began
        began = began or (time.monotonic(), report.tokens)  # what was there before counts for no rate
        seconds, words = time.monotonic() - began[0], report.tokens - began[1]
        line = f"{report.done:,} of {report.parts:,} parts, {report.tokens:,} words"
        if words:
            expected = report.tokens * report.rows / report.rows_done
            left = _clock((expected - report.tokens) * seconds / words)
            line += f", {words / seconds:,.0f} words a second, {left} left"
        typer.echo(line, err=True)

    return told


def tell_counts(notes: Iterable[tuple[str, int, str]]) -> None:
    """A line for each count that is not 0: what, how many, and what became of them."""
    for what, count, how in notes:
        if count:
            typer.echo(f"  {what}: {count:,}" + (f" ({how})" if how else ""), err=True)


def tell_workers(report: "RunReport") -> None:
    """Prints how many workers there were, and how busy between the first part and the last."""
    workers = report.workers.values()
    if not workers:
        return
    seconds = max(each.ended for each in workers) - min(each.began for each in workers)
    shares = sorted(each.busy / max(seconds, 1e-9) for each in workers)
    busy = f"{shares[0]:.0%} to {shares[-1]:.0%}" if len(shares) > 1 else f"{shares[0]:.0%}"
    typer.echo(f"  workers: {len(shares):,}, busy {busy} of the time", err=True)


def refuse_with_ray(**given: object) -> None:
    """Options that the workers of Ray do not know are an error, not passed over."""
    from elmokit.errors import InputError

    for name, value in given.items():
        if value:
            raise InputError(f"--{name.replace('_', '-')} cannot be given with --engine ray; leave it out")
