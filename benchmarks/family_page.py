"""The numbers of benchmarks/family.py as a file, a table, a page and pictures; no model is needed for them."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PARTS = {"pos": "POS", "ner": "NER F1", "wsd": "WSD", "scws": "SCWS", "wic": "WiC"}
MARKS = "<!-- written by benchmarks/family.py -->", "<!-- end -->"


@dataclass
class Numbers:
    """A score for each system and part, growing while it is measured."""

    systems: list[tuple[str, str]]  # group and name
    limits: dict[str, int]
    models: dict[str, str] = field(default_factory=dict)  # what each of them is
    scores: dict[str, list[float]] = field(default_factory=dict)  # by part, in the order of the systems
    seconds: dict[str, float] = field(default_factory=dict)  # by part

    def write(self, path: Path) -> None:
        """The parts that are whole, so that it can be called after each."""
        rows = [
            {"group": group, "name": name, **{part: values[k] for part, values in self.scores.items()}}
            for k, (group, name) in enumerate(self.systems)
        ]
        told = {"limits": self.limits, "models": self.models, "seconds": self.seconds, "rows": rows}
        path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read_numbers(paths: Sequence[Path]) -> Numbers:
    """What `Numbers.write` wrote; parts measured apart, under the same limits, are put together."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    found = Numbers([(row["group"], row["name"]) for row in read[0]["rows"]], read[0]["limits"], read[0]["models"])
    measured: dict[str, list[float]] = {}
    for path, data in zip(paths, read, strict=True):
        if [(row["group"], row["name"]) for row in data["rows"]] != found.systems or data["limits"] != found.limits:
            sys.exit(f"{path}: has other lines or limits than {paths[0]}; expected parts of one measurement")
        measured |= {part: [row[part] for row in data["rows"]] for part in PARTS if part in data["rows"][0]}
        found.seconds |= data["seconds"]
    found.scores = {part: measured[part] for part in PARTS if part in measured}
    return found


def markdown(numbers: Numbers) -> str:
    """The table, the best of each column bold, and the limits."""
    scores = numbers.scores
    heads = [PARTS[part] for part in scores]
    lines = [f"| | {' | '.join(heads)} |", f"| --- | {' | '.join('---:' for _ in heads)} |"]
    above = ""
    for k, (group, name) in enumerate(numbers.systems):
        if group != above:
            above = group
            lines.append(f"| **{group}** | {' | '.join('' for _ in heads)} |")
        shown = [f"**{v[k]:.1f}**" if v[k] == max(v) else f"{v[k]:.1f}" for v in scores.values()]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines) + f"\n\nLimits: {_told(numbers.limits)}."


def _told(limits: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {limit or 'all'}" for name, limit in limits.items())


def write_page(page: Path, table: str) -> None:
    """Put the table between the marks of a Markdown page; all else on it stays."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        sys.exit(f"{page}: expected the marks {MARKS[0]} and {MARKS[1]} around the table")
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


def draw(numbers: Numbers, folder: Path) -> None:
    """The table as a picture, and the layers of each model as curves."""
    from elmokit.plots import CurvePoint, Value, draw_lines, draw_table, save_chart

    folder.mkdir(parents=True, exist_ok=True)
    values = [
        Value(f"{group}: {name}", scores[k], PARTS[part])
        for k, (group, name) in enumerate(numbers.systems)
        for part, scores in numbers.scores.items()
    ]
    save_chart(draw_table(values, title="The family side by side"), folder / "family.svg")
    points: list[Any] = [
        CurvePoint(int(name.split()[0]), scores[k], group, panel=PARTS[part])
        for part, scores in numbers.scores.items()
        for k, (group, name) in enumerate(numbers.systems)
        if group in ("ELMo", "BERT") and name[0].isdecimal()
    ]
    chart = draw_lines(points, title="What each layer knows", x="layer", y="score", whole=True)
    save_chart(chart, folder / "family-layers.svg")
