"""What an ablation found: the table, the curve, and their pictures."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.formats.atomic import write_text
from elmokit.plots import CurvePoint, MixWeights, draw_lines, draw_mixes, save_chart
from elmokit.tasks.ablate.run import WITHOUT, CellResult
from elmokit.tasks.saved import LearnedMix

TITLES = {
    "none": "without ELMo",
    "layer-0": "layer 0 only",
    "top": "top layer only",
    "average": "average",
    "mix-input": "mix at input",
    "mix-output": "mix at output",
    "mix-both": "mixes at both",
    "as-set": "ELMo as set",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """All seeds of one variant on one share of the data."""

    variant: str
    share: float
    examples: int
    seeds: int
    score: float  # mean
    spread: float | None  # standard deviation over seeds; None for a single one
    reduction: float | None  # of the error that the network without ELMo makes on as much data
    mixes: dict[str, LearnedMix]  # by place, means
    seconds: float  # mean

    @property
    def title(self) -> str:
        return TITLES.get(self.variant, self.variant)


def summarise(results: Sequence[CellResult]) -> list[Summary]:
    """One summary per variant and share, in the order they were first met."""
    groups: dict[tuple[str, float], list[CellResult]] = {}
    for result in results:
        groups.setdefault((result.variant, result.share), []).append(result)
    found = []
    for (variant, share), cells in groups.items():
        scores = [cell.score for cell in cells]
        score = statistics.fmean(scores)
        spread = statistics.stdev(scores) if len(scores) > 1 else None
        reduction = None
        plain = groups.get((WITHOUT.name, share))
        if plain and variant != WITHOUT.name:
            base = statistics.fmean(cell.score for cell in plain)
            reduction = (score - base) / (1 - base) if base < 1 else 0.0
        seconds = statistics.fmean(cell.seconds for cell in cells)
        mixes = {place: _mean_mix([cell.mixes[place] for cell in cells]) for place in cells[0].mixes}
        found.append(Summary(variant, share, cells[0].examples, len(cells), score, spread, reduction, mixes, seconds))
    return found


def table_of(summaries: Sequence[Summary], *, metric: str) -> list[list[str]]:
    """The main table, its head first: variants on all data. A field has a line for each place of a mix."""
    head = ["network", f"dev {metric}", "±", "less error", "layer weights", "gamma", "seeds", "time"]
    rows = [head]
    for own in summaries:
        if own.share != 1:
            continue
        weights = "\n".join(f"{_at(own, place)}{_shares(mix.shares)}" for place, mix in own.mixes.items())
        gammas = "\n".join(f"{mix.gamma:.2f}" for mix in own.mixes.values())
        rows.append(
            [
                own.title,
                f"{100 * own.score:.2f}",
                _spread(own),
                "" if own.reduction is None else f"{100 * own.reduction:.1f}%",
                weights,
                gammas,
                str(own.seeds),
                _time(own.seconds),
            ]
        )
    return rows


def curve_of(summaries: Sequence[Summary], *, metric: str) -> list[list[str]]:
    """The curve as a table, its head first; empty where only all data was trained on."""
    shares = sorted({own.share for own in summaries if own.share != 1})
    if not shares:
        return []
    variants = list(dict.fromkeys(own.variant for own in summaries if own.share != 1))
    by_place = {(own.variant, own.share): own for own in summaries}
    rows = [["training data", "examples", *(f"{TITLES.get(v, v)}, dev {metric}" for v in variants)]]
    for share in (*shares, 1.0):
        here = [by_place.get((variant, share)) for variant in variants]
        if not any(here):
            continue
        examples = next(own.examples for own in here if own)
        numbers = ["" if own is None else f"{100 * own.score:.2f} {_spread(own, sign='± ')}".strip() for own in here]
        rows.append([f"{100 * share:g}%", f"{examples:,}", *numbers])
    return rows


def write_report(folder: Path, results: Sequence[CellResult], *, about: dict[str, Any]) -> None:
    """`ablation.json` and `ablation.md`; `about` says of which task, data and encoder, and has the metric's name."""
    folder.mkdir(parents=True, exist_ok=True)
    summaries = summarise(results)
    content = {**about, "table": [asdict(own) for own in summaries], "cells": [asdict(cell) for cell in results]}
    write_text(folder / "ablation.json", json.dumps(content, indent=1) + "\n")
    write_text(folder / "ablation.md", markdown(summaries, about))


def markdown(summaries: Sequence[Summary], about: dict[str, Any]) -> str:
    """The report to read."""
    metric = str(about["metric"])
    parts = [f"# Ablation: {about['task']}\n"]
    parts += [f"{name}: {value}  " for name, value in about.items() if name in ("encoder", "train", "dev", "command")]
    parts += ["", _markdown(table_of(summaries, metric=metric))]
    parts.append(
        "\n± is the standard deviation over seeds; less error is the relative error reduction, the share of the error "
        "(100 - score) of the network without ELMo that is gone; weights are those after the softmax, lowest layer "
        "first; time is that of one training once the layers are computed. Weights, gamma and time are means."
    )
    if curve := curve_of(summaries, metric=metric):
        parts += ["\n## Less training data\n", _markdown(curve)]
    return "\n".join(parts) + "\n"


def draw_report(folder: Path, results: Sequence[CellResult], *, about: dict[str, Any], suffix: str) -> list[Path]:
    """Pictures of what there is: layer weights, and the curve."""
    summaries = summarise(results)
    drawn = []
    layers = tuple(about["layers"])
    mixes = [
        MixWeights(f"{own.title}{f' ({place})' if len(own.mixes) > 1 else ''}", layers, mix.shares, mix.gamma)
        for own in summaries
        if own.share == 1
        for place, mix in own.mixes.items()
        if len(mix.shares) == len(layers)
    ]
    if mixes:
        chart = draw_mixes(mixes, title=f"{about['task']}: layer weights that the mixes learned")
        drawn.append(save_chart(chart, folder / f"layer-weights{suffix}"))
    compared = {own.variant for own in summaries if own.share != 1}
    points = [
        CurvePoint(
            100 * own.share,
            100 * own.score,
            own.title,
            None if own.spread is None else 100 * (own.score - own.spread),
            None if own.spread is None else 100 * (own.score + own.spread),
        )
        for own in sorted(summaries, key=lambda own: own.share)
        if own.variant in compared
    ]
    if points:
        title = f"{about['task']}: how much training data it takes"
        chart = draw_lines(points, title=title, x="% of the training data", y=f"dev {about['metric']}", log=True)
        drawn.append(save_chart(chart, folder / f"curve{suffix}"))
    return drawn


def _mean_mix(mixes: Sequence[LearnedMix]) -> LearnedMix:
    shares = tuple(statistics.fmean(column) for column in zip(*(mix.shares for mix in mixes), strict=True))
    return LearnedMix(shares, statistics.fmean(mix.gamma for mix in mixes))


def _at(own: Summary, place: str) -> str:
    """The place's name where there are several."""
    return f"{place} " if len(own.mixes) > 1 else ""


def _shares(shares: Sequence[float]) -> str:
    return " ".join(f"{share:.2f}".removeprefix("0") for share in shares)


def _spread(own: Summary, *, sign: str = "") -> str:
    return "" if own.spread is None else f"{sign}{100 * own.spread:.2f}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    written = [" | ".join(field.replace("\n", "<br>") for field in row) for row in lines]
    return "\n".join(f"| {row} |" for row in written)
