"""Draws docs/images/architecture.svg from the import contract in pyproject.toml.

    python docs/make_architecture.py            write it
    python docs/make_architecture.py --check    exit with 1 if the file is out of date

A row of the picture is a layer of the contract; the words in a box are the first words of the module's docstring.
"""

import argparse
import ast
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "elmokit"
TARGET = ROOT / "docs" / "images" / "architecture.svg"

WIDTH, LEFT, RIGHT, TOP = 960, 64, 16, 72
GAP, LINE, PAD = 10, 15, 10
LETTER = 6.3  # pixels of a letter of 12 px, on average
PLAIN, TORCH = ("#e6f4ea", "#5f9c72"), ("#e8f0fb", "#6a8fc5")  # fill and frame


@dataclass(frozen=True)
class Box:
    """A module of the contract."""

    name: str
    lines: tuple[str, ...]
    torch: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    drawn = picture(read_rows())
    if parser.parse_args().check:
        if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != drawn:
            sys.exit(f"{TARGET.name} is out of date; run  python docs/make_architecture.py")
        return
    TARGET.write_text(drawn, encoding="utf-8")


def read_rows() -> list[list[Box]]:
    """The layers of the first contract, the highest first; the second one says what needs no torch."""
    order, plain, *_ = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    rows = []
    for layer in order["layers"]:
        names = [name for part in layer.split("|") if (name := part.strip("() ")) and _file(name).is_file()]
        shown = [name for name in names if not name.startswith("_")]
        wide = (WIDTH - LEFT - RIGHT - GAP * (len(shown) - 1)) / max(len(shown), 1) - 2 * PAD
        room = int((wide if len(shown) > 2 else wide - 120) / LETTER)
        boxes = [Box(n, _words(n, room), torch=f"elmokit.{n}" not in plain["source_modules"]) for n in shown]
        if boxes:
            rows.append(boxes)
    return rows


def picture(rows: list[list[Box]]) -> str:
    drawn, y = [], TOP
    for row in rows:
        beside = len(row) <= 2  # the words stand beside the name; in narrow boxes below it
        tall = max(len(box.lines) for box in row) * LINE + 2 * PAD + (0 if beside else LINE + 2)
        wide = (WIDTH - LEFT - RIGHT - GAP * (len(row) - 1)) / len(row)
        for k, box in enumerate(row):
            drawn += draw_box(box, LEFT + k * (wide + GAP), y, wide, tall, beside=beside)
        y += tall + GAP
    return "\n".join([*_head(y + 6), *_legend(), *_arrow(TOP, y - GAP), *drawn, "</svg>"]) + "\n"


def draw_box(box: Box, x: float, y: float, wide: float, tall: float, *, beside: bool) -> Iterator[str]:
    fill, frame = TORCH if box.torch else PLAIN
    yield f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{tall}" rx="5" fill="{fill}" stroke="{frame}"/>'
    folder = _file(box.name).name == "__init__.py"
    yield _text(x + PAD, y + PAD + 11, box.name + ("/" if folder else ".py"), "name")
    left, top = (x + PAD + 120, y + PAD + 11) if beside else (x + PAD, y + PAD + 13 + LINE)
    for k, line in enumerate(box.lines):
        yield _text(left, top + k * LINE, line, "words")


def _head(tall: float) -> Iterator[str]:
    size = f'width="{WIDTH}" height="{tall:.0f}" viewBox="0 0 {WIDTH} {tall:.0f}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    yield "<title>The parts of elmokit; each imports only from the rows below its own</title>"
    yield "<style>"
    yield "text { font-family: Helvetica, Arial, 'Liberation Sans', sans-serif; fill: #1f2933; }"
    yield ".name { font-family: Menlo, Consolas, 'Liberation Mono', monospace; font-size: 13px; font-weight: bold; }"
    yield ".words { font-size: 12px; } .title { font-size: 17px; font-weight: bold; }"
    yield "</style>"
    yield '<rect width="100%" height="100%" fill="#ffffff"/>'
    yield _text(LEFT, 28, "src/elmokit: each part imports only from the rows below its own", "title")


def _legend() -> Iterator[str]:
    for x, (fill, frame), said in ((LEFT, PLAIN, "runs without torch"), (LEFT + 170, TORCH, "may load torch")):
        yield f'<rect x="{x}" y="43" width="16" height="14" rx="3" fill="{fill}" stroke="{frame}"/>'
        yield _text(x + 23, 54, said, "words")


def _arrow(top: float, bottom: float) -> Iterator[str]:
    x = LEFT / 2
    yield f'<path d="M {x} {top} V {bottom - 8:.0f}" stroke="#52606d" stroke-width="2" fill="none"/>'
    yield f'<path d="M {x - 6} {bottom - 12:.0f} L {x} {bottom:.0f} L {x + 6} {bottom - 12:.0f} Z" fill="#52606d"/>'
    middle = (top + bottom) / 2
    turned = f'transform="rotate(-90 {x - 8} {middle:.0f})" text-anchor="middle"'
    yield f'<text x="{x - 8}" y="{middle:.0f}" class="words" {turned}>imports go down</text>'


def _text(x: float, y: float, said: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.0f}" class="{kind}">{escape(said)}</text>'


def _file(name: str) -> Path:
    return SOURCE / name / "__init__.py" if (SOURCE / name).is_dir() else SOURCE / f"{name}.py"


def _words(name: str, room: int) -> tuple[str, ...]:
    """The first sentence of the module's docstring in lines of `room` letters; its first clause if that is long."""
    docstring = ast.get_docstring(ast.parse(_file(name).read_text(encoding="utf-8"))) or ""
    first = " ".join(docstring.partition("\n\n")[0].split()).replace("`", "")
    sentence, clause = (re.split(ends, first)[0] for ends in (r"\.(?:\s|$)", r"[:;.](?:\s|$)|, so that "))
    whole = textwrap.wrap(sentence, room)
    return tuple(whole if len(whole) <= 2 else textwrap.wrap(clause, room))


if __name__ == "__main__":
    main()
