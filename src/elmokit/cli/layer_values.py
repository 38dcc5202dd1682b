"""Numbers by encoder and layer, as the commands that look into layers show them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from elmokit._terminal import Console
    from elmokit.analysis.views import View
    from elmokit.encoders import Encoder

LAYERS_HELP = "each, average, concat:1,2, second-to-last ...; give several to compare. Default: each and average."


class LayerValue(NamedTuple):
    """One number for each head of the table; `view` is a layer or a mix of layers, or what they are compared with."""

    encoder: str
    view: str
    values: tuple[float, ...]
    low: float | None = None  # the first value's 95% interval
    high: float | None = None


def short_names(sources: Sequence[str | None]) -> list[str]:
    """What each encoder is called in tables: the end of its name, or all of it where two ends are alike."""
    ends = [source.rstrip("/").rpartition("/")[2].rpartition(":")[2] if source else "bundled" for source in sources]
    return [end if ends.count(end) == 1 else str(source or end) for end, source in zip(ends, sources, strict=True)]


def each_encoder(
    sources: Sequence[str] | None, layers: Sequence[str] | None, *, usual: str, device: str
) -> "Iterator[tuple[str, Encoder, tuple[View, ...]]]":
    """Each encoder with its short name and the views of its layers: by default each layer and, of several, `usual`."""
    from elmokit.analysis.views import EACH, list_views
    from elmokit.encoders import load_encoder

    given: list[str | None] = [*sources] if sources else [None]
    for source, name in zip(given, short_names(given), strict=True):
        model = load_encoder(source, device=device)
        typer.echo(model.info, err=True)
        yield name, model, list_views(model.layer_names, layers or [EACH, *([usual] if model.depth > 1 else [])])


def give_out(
    heads: Sequence[str],
    rows: Sequence[LayerValue],
    *,
    keys: Sequence[str],
    about: str = "",
    json_output: bool,
    output: Path | None,
) -> None:
    """The values on the screen, as a table or as JSON with these keys, and in the file `output`."""
    from elmokit._terminal import Console
    from elmokit.cli.show import print_json

    records = records_of(keys, rows)
    if json_output:
        print_json(records)
    else:
        console = Console(highlight=False)
        if about:
            console.print(about)
        show_values(console, heads, rows)
    if output is not None:
        write_records(records, output)


def show_values(console: "Console", heads: Sequence[str], rows: Sequence[LayerValue]) -> None:
    """A table for each encoder."""
    from elmokit.cli.show import table_of

    intervals = any(row.low is not None for row in rows)
    heads = ["layers", heads[0], "95% interval", *heads[1:]] if intervals else ["layers", *heads]
    encoders = list(dict.fromkeys(row.encoder for row in rows))
    for encoder in encoders:
        if len(encoders) > 1 and encoder:
            console.print(encoder, soft_wrap=True)
        table = []
        for row in rows:
            if row.encoder == encoder:
                cells = [row.view, *(f"{value:.2f}" for value in row.values)]
                if intervals:
                    cells.insert(2, "" if row.low is None else f"{row.low:.1f} to {row.high:.1f}")
                table.append(cells)
        console.print(table_of(heads, table))
    console.print()


def draw_values(
    rows: Sequence[LayerValue], path: Path, *, title: str, axis: str, about: str = "", chance: float | None = None
) -> None:
    """Bars of the first value; `about` names model and data, `chance` is what guessing gives."""
    from elmokit.plots import Value, draw_bars, save_chart

    several = len({row.encoder for row in rows}) > 1
    values = [
        Value(row.view, row.values[0], row.encoder if several else "", low=row.low, high=row.high) for row in rows
    ]
    save_chart(draw_bars(values, title=title, axis=axis, about=about, chance=chance), path)


def records_of(heads: Sequence[str], rows: Sequence[LayerValue]) -> list[dict[str, Any]]:
    """The table for JSON."""
    return [
        {
            "encoder": r.encoder,
            "layers": r.view,
            **dict(zip(heads, r.values, strict=True)),
            **({} if r.low is None else {"low": r.low, "high": r.high}),
        }
        for r in rows
    ]


def write_records(records: Sequence[dict[str, Any]], path: Path) -> None:
    """A JSON file of them."""
    from json import dumps

    from elmokit.formats.atomic import write_text

    write_text(path, dumps(records, indent=2, ensure_ascii=False) + "\n")
