"""Charts of what training and analysis find: values per layer, curves, mix weights, points in the plane.

Each `draw_...` takes rows of plain data and returns an Altair chart, which a notebook shows and `save_chart` writes.
Nothing depends on colour alone: series have shapes, dashes or a panel of their own, and numbers are at their bars.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import InputError, MissingExtraError
from elmokit.formats.atomic import atomic_path

__all__ = [
    "CurvePoint", "Dot", "MixWeights", "Value", "draw_bars", "draw_lines", "draw_mixes", "draw_scatter",
    "draw_table", "save_chart",
]  # fmt: skip

SUFFIXES = (".html", ".svg", ".pdf", ".png", ".json")
ROOM = {"left": 30, "right": 30, "top": 5, "bottom": 5}  # for letters that are wider where a picture is shown
# Distinct for the colour-blind, and of different lightness, so that print keeps them apart.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
STAR = "M0,-1L.23,-.33L.95,-.31L.36,.12L.59,.81L0,.38L-.59,.81L-.36,.12L-.95,-.31L-.23,-.33Z"
FRAME = "M-.8,-.8H.8V.8H-.8ZM-.4,-.4V.4H.4V-.4Z"
HOURGLASS = "M-.8,-.8H.8L-.8,.8H.8Z"
SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"),
    *(STAR, FRAME, HOURGLASS, "wedge"),
)
DASHES = (
    (1, 0),
    (7, 3),
    (2, 2),
    (9, 3, 2, 3),
    (4, 4),
    (12, 3),
    (1, 4),
)  # seven and twelve: 84 series look different
BAR = "#9ecae1"  # light enough for black text on it
MIX_WIDTH, BARS_WIDTH, LETTER = 520, 420, 6  # pixels
LONGEST = 160  # characters of a tooltip's text
PANELS = 3  # of curves beside one another


@dataclass(frozen=True, slots=True)
class Value:
    """One bar, or one field of a table. `baseline`, what to compare it with, is drawn as a tick across the bar.

    `low` and `high`, the ends of a confidence interval, are drawn as a line with caps. `note` follows the number.
    """

    label: str  # the row, e.g. a layer
    value: float
    series: str = ""  # the panel or column, e.g. a model or a task
    baseline: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a curve; `low` and `high` draw a bar for the spread, e.g. over seeds."""

    x: float
    y: float
    series: str = ""
    low: float | None = None
    high: float | None = None
    panel: str = ""  # e.g. a task


@dataclass(frozen=True, slots=True)
class MixWeights:
    """What a task's mix became: softmax shares by layer, and gamma."""

    model: str
    names: tuple[str, ...]
    shares: tuple[float, ...]
    gamma: float


@dataclass(frozen=True, slots=True)
class Dot:
    """A point in the plane. `text` is shown when pointed at, `label` always."""

    x: float
    y: float
    series: str = ""
    text: str = ""
    label: str = ""


def draw_bars(
    values: Sequence[Value],
    *,
    title: str = "",
    axis: str = "",
    baseline: str = "",
    chance: float | None = None,
    about: str = "",
    digits: int = 1,
) -> Any:
    """Horizontal bars in the order given, a panel for each series; `axis` says what is measured.

    `baseline` says what the ticks are, `chance` is where a dashed line marks a guess, `about` names model and data.
    """
    alt = _altair()
    _rows(values)
    marks = (v.baseline for v in values if v.baseline is not None)
    limits = [0.0, *(v.value for v in values), *marks, *(v.high for v in values if v.high is not None)]
    scale = alt.Scale(domain=[min(limits), max(limits)], nice=False)
    series = list(dict.fromkeys(v.series for v in values))
    panels = []
    for name in series:
        # Every panel has the grid; the last one has the numbers below it.
        shown = alt.Axis() if name == series[-1] else alt.Axis(labels=False, ticks=False, domain=False, title=None)
        below = axis if axis and name == series[-1] else None
        x = alt.X("value:Q", title=below, scale=scale, axis=shown)
        panel = _bars(alt, _rows([v for v in values if v.series == name]), x, below, chance, digits)
        panels.append(panel.properties(title=alt.TitleParams(name, anchor="start", fontSize=11)) if name else panel)
    chart = panels[0] if len(panels) == 1 else alt.vconcat(*panels, spacing=10)
    keys = [f"thick tick: {baseline}"] if baseline else []
    keys += ["line with caps: 95% interval (bootstrap)"] if any(v.low is not None for v in values) else []
    keys += [f"dashed line: {chance:g}, by chance"] if chance is not None else []
    return _titled(chart, title, [*([about] if about else []), *(["; ".join(keys)] if keys else [])])


def _bars(alt: Any, rows: list[dict[str, Any]], x: Any, title: str | None, chance: float | None, digits: int) -> Any:
    """One panel. The numbers stand in a column to the right, clear of bars, ticks and intervals."""
    rows = [{**row, "shown": f"{row['value']:.{digits}f}{row['note'] and '  ' + row['note']}"} for row in rows]
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=alt.Y("label:N", sort=None, title=None))
    tooltip = [alt.Tooltip("label:N"), alt.Tooltip("value:Q", format=f".{digits}f")]
    marks = base.mark_bar(color=BAR, stroke="black", strokeWidth=0.5).encode(x=x, tooltip=tooltip)
    marks += base.mark_text(align="left").encode(x=alt.value(BARS_WIDTH + 6), text="shown:N")
    if any(row["low"] is not None for row in rows):
        held = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
        marks += held.mark_errorbar(ticks=alt.TickConfig(size=7), color="black").encode(
            x=alt.X("low:Q", title=title), x2="high:Q"
        )
    if any(row["baseline"] is not None for row in rows):
        held = base.transform_filter("isValid(datum.baseline)")
        marks += held.mark_tick(color="black", thickness=2.5).encode(x=alt.X("baseline:Q"))
    if chance is not None:
        line = alt.Chart(alt.InlineData(values=[{"chance": chance}])).mark_rule(strokeDash=[4, 3], color="#555555")
        marks += line.encode(x=alt.X("chance:Q"))
    return marks.properties(width=BARS_WIDTH, height=alt.Step(19))


def draw_table(values: Sequence[Value], *, title: str = "", axis: str = "", digits: int = 1) -> Any:
    """A field for each label (row) and series (column), its number in it; the highest of a column is bold."""
    alt = _altair()
    columns = list(dict.fromkeys(v.series for v in values))
    spans = {c: [v.value for v in values if v.series == c] for c in columns}
    rows = [
        {**row, "height": (v.value - min(spans[v.series])) / ((max(spans[v.series]) - min(spans[v.series])) or 1)}
        for row, v in zip(_rows(values), values, strict=True)
    ]
    place = {
        "y": alt.Y("label:N", sort=None, title=None, axis=alt.Axis(grid=False)),
        "x": alt.X(
            "series:N", sort=columns, title=None, axis=alt.Axis(orient="top", labelAngle=0, labelLimit=200, grid=False)
        ),
    }
    base = alt.Chart(alt.InlineData(values=rows)).encode(**place)
    shade = alt.Color("height:Q", scale=_shades(alt), legend=None)
    number = alt.Text("value:Q", format=f".{digits}f")
    marks = base.mark_rect(stroke="#999999").encode(color=shade)
    marks += base.transform_filter("datum.height < 1").mark_text().encode(text=number)
    marks += base.transform_filter("datum.height == 1").mark_text(fontWeight="bold").encode(text=number)
    return _titled(marks.properties(width=alt.Step(96), height=alt.Step(22)), title, [axis] if axis else [])


def draw_lines(
    points: Sequence[CurvePoint],
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    log: bool = False,
    whole: bool = False,
    about: str = "",
) -> Any:
    """A line with marked points for each series, in the panels that the points name, each with a scale of its own.

    `log` spaces x by ratio, `whole` numbers x in whole steps (layers), `about` names model and data.
    """
    alt = _altair()
    _rows(points)
    series = list(dict.fromkeys(p.series for p in points))
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False, nice=not whole)
    ticks = sorted({p.x for p in points})
    axis = alt.Axis(values=ticks, format=",.0f") if whole or (log and len(ticks) <= 12) else alt.Undefined
    across = alt.X("x:Q", title=x or None, scale=scale, axis=axis)
    names = list(dict.fromkeys(p.panel for p in points))
    if len(names) == 1:
        chart = _lines(alt, _rows(points), series, across, y).properties(width=480, height=300)
        return _titled(chart, title, [about] if about else [])
    panels = [
        _lines(alt, _rows([p for p in points if p.panel == name]), series, across, y).properties(
            width=220, height=170, title=alt.TitleParams(name, anchor="start", fontSize=11)
        )
        for name in names
    ]
    return _titled(alt.concat(*panels, columns=PANELS), title, [about] if about else [])


def _lines(alt: Any, rows: list[dict[str, Any]], series: list[str], across: Any, y: str) -> Any:
    """One panel."""
    up = alt.Y("y:Q", title=y or None, scale=alt.Scale(zero=False))
    legend = _legend(alt, series, symbolStrokeWidth=0)  # a dashed outline would hide the shape
    styles = {
        "color": alt.Color("series:N", sort=series, scale=_cycle(COLOURS, series), legend=legend),
        "strokeDash": alt.StrokeDash("series:N", sort=series, scale=_cycle(DASHES, series), legend=None),
    }
    shape = alt.Shape("series:N", sort=series, scale=_cycle(SHAPES, series), legend=legend)
    tooltip = [alt.Tooltip("series:N"), alt.Tooltip("x:Q"), alt.Tooltip("y:Q")]
    base = alt.Chart(alt.InlineData(values=rows)).encode(x=across, y=up)
    marks = base.mark_line(strokeWidth=1.6).encode(**styles)
    if any(row["low"] is not None and row["high"] is not None for row in rows):
        spread = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule()
        marks += spread.encode(y=alt.Y("low:Q", title=y or None), y2="high:Q", color=styles["color"])
    marks += base.mark_point(filled=True, size=60, opacity=1).encode(
        color=styles["color"], shape=shape, tooltip=tooltip
    )
    return marks


def draw_mixes(mixes: Sequence[MixWeights], *, title: str = "Layer weights that the tasks learned") -> Any:
    """A bar for each model, cut into its layers' shares, and gamma beside it."""
    alt = _altair()
    rows, gammas = [], []
    for mix in mixes:
        if len(mix.names) != len(mix.shares):
            raise InputError(
                f"{mix.model}: {len(mix.shares)} shares for {len(mix.names)} layers; expected one for each"
            )
        at, total = 0.0, sum(mix.shares) or 1.0
        for k, (name, share) in enumerate(zip(mix.names, mix.shares, strict=True)):
            part = share / total
            texts = (f"{name} {share:.2f}", f"{share:.2f}", "")  # the first that fits
            text = next(text for text in texts if LETTER * len(text) <= MIX_WIDTH * part)
            here = {"model": mix.model, "layer": name, "share": share, "begin": at, "end": at + part}
            rows.append({**here, "middle": at + part / 2, "text": text, "shade": k / max(len(mix.names) - 1, 1)})
            at += part
        gammas.append({"model": mix.model, "text": f"gamma {mix.gamma:.2f}", "end": 1.0})
    y = alt.Y("model:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
    across = alt.X("begin:Q", title="share of the layer", scale=alt.Scale(domain=[0, 1]))
    base = alt.Chart(alt.InlineData(values=rows)).encode(y=y)
    shade = alt.Color("shade:Q", scale=_shades(alt), legend=None)
    tooltip = [alt.Tooltip("model:N"), alt.Tooltip("layer:N"), alt.Tooltip("share:Q", format=".3f")]
    marks = base.mark_bar(stroke="black", strokeWidth=0.8).encode(x=across, x2="end:Q", color=shade, tooltip=tooltip)
    marks += base.mark_text(fontSize=10).encode(x=alt.X("middle:Q"), text="text:N")
    beside = alt.Chart(alt.InlineData(values=gammas)).encode(y=y, x=alt.X("end:Q"), text="text:N")
    marks += beside.mark_text(align="left", dx=8, clip=False)
    return _titled(marks.properties(width=MIX_WIDTH, height=alt.Step(28)), title)


def draw_scatter(dots: Sequence[Dot], *, title: str = "", x: str = "", y: str = "", about: str = "") -> Any:
    """Points with a shape for each series; in HTML their text shows when pointed at, and the picture can be zoomed.

    `about` names model and data.
    """
    alt = _altair()
    series = list(dict.fromkeys(d.series for d in dots))
    rows = [{**row, "text": d.text[:LONGEST]} for row, d in zip(_rows(dots), dots, strict=True)]
    bare = alt.Axis(labels=False, ticks=False, grid=False)
    flat = {"scale": alt.Scale(zero=False, padding=12), "axis": bare}
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("x:Q", title=x or None, **flat), y=alt.Y("y:Q", title=y or None, **flat)
    )
    legend = _legend(alt, series)
    points = base.mark_point(size=55, filled=False, strokeWidth=1.4).encode(
        shape=alt.Shape("series:N", sort=series, scale=_cycle(SHAPES, series), legend=legend),
        color=alt.Color("series:N", sort=series, scale=_cycle(COLOURS, series), legend=legend),
        tooltip=[alt.Tooltip("series:N"), alt.Tooltip("text:N"), alt.Tooltip("label:N")],
    )
    below, above = [], []
    middle = (min(d.x for d in dots) + max(d.x for d in dots)) / 2
    for side, align, off in ((f"datum.x <= {middle}", "left", 7), (f"datum.x > {middle}", "right", -7)):
        if any(d.label for d in dots):  # towards the middle, where there is room; a white rim under the points
            named = base.transform_filter(f"datum.label && {side}").encode(text="label:N")
            style = {"align": align, "dx": off, "fontSize": 10, "fontWeight": "bold"}
            below.append(named.mark_text(**style, stroke="white", strokeWidth=4))
            above.append(named.mark_text(**style))
    marks = alt.layer(*below, points, *above)
    return _titled(marks.properties(width=520, height=420).interactive(), title, [about] if about else [])


def save_chart(chart: Any, path: str | Path) -> Path:
    """Write a chart as its suffix says: .html (whole, needs no network), .svg, .pdf, .png or .json (Vega-Lite)."""
    path = Path(path)
    check_chart_path(path)
    with atomic_path(path) as part:
        format = path.suffix.lower()[1:]
        if format == "json":
            part.write_text(chart.to_json() + "\n", encoding="utf-8")
        elif format == "png":
            chart.save(part, format="png", scale_factor=2)
        else:
            chart.save(part, format=format, **({"inline": True} if format == "html" else {}))
    return path


def check_chart_path(path: str | Path) -> None:
    """Refuse, before any work is done, a name that `save_chart` could not write; and say what is not installed."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a chart's file name ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    _altair()


def _altair() -> Any:
    try:
        import altair
        import vl_convert  # noqa: F401  (altair writes SVG, PNG and whole HTML pages with it)
    except ImportError as error:
        raise MissingExtraError("charts need altair and vl-convert", extra="plots") from error
    return altair


def _legend(alt: Any, series: Sequence[str], **more: Any) -> Any:
    return alt.Legend(title=None, symbolSize=90, labelLimit=400, **more) if any(series) else None


def _shades(alt: Any) -> Any:
    return alt.Scale(domain=[0, 1], range=["#ffffff", BAR], interpolate="rgb")


def _rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    if not records:
        raise InputError("there is nothing to draw: no values were given")
    return [asdict(record) for record in records]


def _cycle(styles: Sequence[Any], series: Sequence[str]) -> Any:
    """A style for each series, from the first again where there are more series than styles."""
    alt = _altair()
    made = [styles[k % len(styles)] for k in range(len(series))]
    return alt.Scale(domain=list(series), range=[list(s) if isinstance(s, tuple) else s for s in made])


def _titled(chart: Any, title: str, subtitle: Sequence[str] = ()) -> Any:
    """With a title, and lines below it in smaller type."""
    alt = _altair()
    if title or subtitle:
        shown = {"subtitle": list(subtitle)} if subtitle else {}
        chart = chart.properties(title=alt.TitleParams(title, anchor="start", **shown))
    styled = chart.configure_view(stroke=None).configure_axis(labelLimit=320, grid=True, gridColor="#eeeeee")
    return styled.configure(padding=ROOM)
