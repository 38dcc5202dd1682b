"""What the command `ablate` does once its settings are known: files, layers, cells one after another, the report."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from elmokit._terminal import Console
from elmokit.encoders import load_encoder
from elmokit.errors import InputError, MissingExtraError
from elmokit.formats.resumable import disk_errors
from elmokit.plots import check_chart_path
from elmokit.tasks.ablate.report import curve_of, draw_report, summarise, table_of, write_report
from elmokit.tasks.ablate.run import (
    VARIANTS,
    Cell,
    CellResult,
    Plan,
    curve_variants,
    is_trained,
    pick_variants,
    run_ablation,
)
from elmokit.tasks.command import Display, TrainingFiles, cached_layers, read_examples
from elmokit.tasks.run import Listener
from elmokit.tasks.setup import Setup
from elmokit.tasks.task import Task


def make_plan(task: Task[Any, Any], setup: Setup, *, seeds: int, variants: str | None, shares: str) -> Plan:
    """From what stands on the command line: a number, names, percentages, the last two with commas between.

    Without names, all variants that the task's network takes, the one that the settings describe among them.
    """
    if seeds < 1:
        raise InputError(f"{seeds} seeds; expected 1 or more")
    first = setup.training.seed
    try:
        parts = tuple(float(part) / 100 for part in shares.split(",") if part.strip())
    except ValueError:
        raise InputError(f"shares are {shares!r}; expected percentages such as 1,3,10,30,100") from None
    compared = curve_variants(setup) if setup.features.elmo_at != "none" or any(part < 1 for part in parts) else ()
    possible = ("none", *task.elmo_places)
    if variants is None:
        usual = [variant for variant in VARIANTS if variant.elmo_at in possible]
        picked = tuple(dict.fromkeys((*usual, *compared)))
    else:
        names = [name.strip() for name in variants.split(",") if name.strip()]
        picked = pick_variants(names, as_set=compared[1] if compared else None)
    if wrong := [variant for variant in picked if variant.elmo_at not in possible]:
        places = " or ".join(task.elmo_places)
        raise InputError(f"variant {wrong[0].name!r}: the network of {task.name} takes layers at {places} only")
    curve = compared if any(part < 1 for part in parts) else ()
    return Plan(variants=picked, seeds=tuple(range(first, first + seeds)), shares=parts, curve=curve)


def run_ablate(
    task: Task[Any, Any],
    setup: Setup,
    files: TrainingFiles,
    plan: Plan,
    *,
    device: str = "auto",
    pictures: str = ".svg",
    show: bool = True,
) -> list[CellResult]:
    """Trains the cells that are missing; the report in the folder is written anew after each."""
    console = Console(stderr=True, quiet=not show, highlight=False, soft_wrap=True)
    try:
        check_chart_path(files.output / f"curve{pictures}")
    except MissingExtraError as error:
        console.print(f"no pictures will be drawn; {error}", markup=False)  # extras stand in brackets
        pictures = ""
    train, dev = read_examples(task, setup, files, console)
    cells = list(plan.cells())
    encoder = load_encoder(files.encoder, device=device)
    display = Display(console)
    layers = None
    if any(cell.variant.elmo_at != "none" and not is_trained(files.output, cell) for cell in cells):
        layers = cached_layers(encoder, [*train, *dev], files.cache, console=console, display=display)
    about: dict[str, Any] = {
        "task": task.name,
        "encoder": files.encoder or "en",
        "fingerprint": encoder.fingerprint,
        "layers": list(encoder.layer_names),
        "train": Path(files.train).name,
        "dev": Path(files.dev).name,
        "command": " ".join(["elmokit", *map(shlex.quote, sys.argv[1:])]),
        "metric": "score",
        "setup": setup.plain(),
    }

    def begin(cell: Cell) -> None:
        display.best = -1.0
        console.print(f"cell {cells.index(cell) + 1} of {len(cells)}: {cell.name}")

    def keep(results: list[CellResult]) -> None:
        about["metric"] = next(iter(results[-1].scores))
        with disk_errors(files.output):
            write_report(files.output, results, about=about)

    def wait(left: int) -> None:
        console.print(f"other processes train the last {left} of {len(cells)} cells; waiting for them")

    with display.shown():
        results = run_ablation(
            task,
            setup,
            train,
            dev,
            plan=plan,
            folder=files.output,
            encoder=encoder,
            layers=layers,
            device=device,
            listener=Listener(epoch=display.epoch, step=display.step, resumed=display.resumed),
            begun=begin,
            told=keep,
            waits=wait,
        )
    summaries = summarise(results)
    shown = Console(quiet=not show, highlight=False)
    for rows in (table_of(summaries, metric=about["metric"]), curve_of(summaries, metric=about["metric"])):
        if rows:
            shown.print(_rich(rows))
            shown.print()
    drawn = draw_report(files.output, results, about=about, suffix=pictures) if pictures else []
    for path in (files.output / "ablation.md", files.output / "ablation.json", *drawn):
        console.print(f"written: {path}")
    return results


def _rich(rows: Sequence[Sequence[str]]) -> Table:
    head, *body = rows
    table = Table(box=None, pad_edge=False)
    for k, name in enumerate(head):  # long names go over lines, so that the numbers fit into 80 columns
        table.add_column(name.replace(" ", "\n"), justify="left" if k == 0 else "right")
    for row in body:
        table.add_row(*row)
    return table
