"""Charts: what stands in them, in every format, and told apart without colour."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import InputError, MissingExtraError
from elmokit.plots import (
    CurvePoint,
    Dot,
    MixWeights,
    Value,
    draw_bars,
    draw_lines,
    draw_mixes,
    draw_scatter,
    draw_table,
    save_chart,
)

pytest.importorskip("altair", reason="charts need altair: pip install 'elmokit[plots]'")
pytest.importorskip("vl_convert", reason="charts need vl-convert: pip install 'elmokit[plots]'")

VALUES = [Value(f"layer {k}", 80 + k, model, baseline=20 + k) for model in ("elmo", "bert") for k in range(3)]
CURVE = [CurvePoint(x, x / 7, series) for series in ("one", "two") for x in (10, 100)]
MIX = MixWeights("ner", ("token", "lstm 1", "lstm 2"), (0.2, 0.5, 0.3), 1.25)
DOTS = [Dot(k, k * k, f"sense {k % 2}", "the play was long", "play" * (k == 0)) for k in range(6)]
CHARTS = {
    "bars": lambda: draw_bars(VALUES, title="Tagging", axis="accuracy", baseline="control"),
    "table": lambda: draw_table(VALUES, title="Tagging"),
    "lines": lambda: draw_lines(CURVE, title="Learning", x="sentences", y="accuracy", log=True),
    "mixes": lambda: draw_mixes([MIX]),
    "scatter": lambda: draw_scatter(DOTS, title="play"),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_written_in_every_format(name: str, tmp_path: Path) -> None:
    chart = CHARTS[name]()
    starts = {".html": b"<!DOCTYPE html>", ".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG", ".json": b"{"}
    for suffix, beginning in starts.items():
        path = save_chart(chart, tmp_path / f"{name}{suffix}")
        assert path.read_bytes().lstrip()[: len(beginning)].lower() == beginning.lower(), suffix
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".html", ".json", ".pdf", ".png", ".svg"]
    page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
    assert '<script src="http' not in page  # the page is whole: it shows without a network


def test_numbers_stand_in_the_picture(tmp_path: Path) -> None:
    svg = save_chart(CHARTS["bars"](), tmp_path / "bars.svg").read_text(encoding="utf-8")
    for shown in ("81.0", "82.0", "elmo", "bert", "layer 2", "thick tick: control"):
        assert f">{shown}<" in svg
    svg = save_chart(CHARTS["mixes"](), tmp_path / "mixes.svg").read_text(encoding="utf-8")
    for shown in ("lstm 1 0.50", "gamma 1.25"):
        assert f">{shown}<" in svg
    svg = save_chart(CHARTS["table"](), tmp_path / "table.svg").read_text(encoding="utf-8")
    assert 'font-weight="bold"' in svg
    assert ">80.0<" in svg


def test_bars_show_chance_intervals_and_what_was_measured(tmp_path: Path) -> None:
    values = [Value("lstm1", 70, "elmo", low=67.5, high=72.25, note="p 0.010"), Value("lstm1", 60, "bert")]
    chart = draw_bars(values, title="Senses", chance=50, about="en; wic, 638 pairs")
    svg = save_chart(chart, tmp_path / "bars.svg").read_text(encoding="utf-8")
    for shown in (
        "70.0  p 0.010",
        "en; wic, 638 pairs",
        "line with caps: 95% interval (bootstrap); dashed line: 50, by chance",
    ):
        assert f">{shown}<" in svg
    spec = chart.to_dict()
    rows = [row for data in spec["datasets"].values() for row in data]
    assert [row["chance"] for row in rows if "chance" in row]
    for panel in spec["vconcat"]:  # the grid is in every panel
        assert panel["layer"][0]["encoding"]["x"]["axis"] is not None


def test_labels_lie_above_points_and_their_rims_below() -> None:
    marks = [layer["mark"] for layer in draw_scatter(DOTS).to_dict()["layer"]]
    kinds = [(mark["type"], "stroke" in mark) for mark in marks]
    point = kinds.index(("point", False))
    assert all(kind == ("text", True) for kind in kinds[:point])
    assert all(kind == ("text", False) for kind in kinds[point + 1 :])
    assert len(kinds) > point + 1


def scales_of(spec: dict[str, Any]) -> dict[str, Any]:
    fields = [item for layer in spec["layer"] for item in layer["encoding"].items()]
    return {name: field["scale"] for name, field in fields if isinstance(field, dict) and "scale" in field}


def test_series_differ_in_shape_and_dash_beside_colour(tmp_path: Path) -> None:
    spec = json.loads(save_chart(CHARTS["lines"](), tmp_path / "lines.json").read_text(encoding="utf-8"))
    scales = scales_of(spec)
    for channel in ("color", "shape", "strokeDash"):
        first, second = scales[channel]["range"]
        assert first != second, channel
    many = [CurvePoint(x, x, f"series {k}") for k in range(30) for x in (1, 2)]
    scales = scales_of(draw_lines(many).to_dict())
    both = zip(scales["shape"]["range"], scales["strokeDash"]["range"], strict=True)
    looks = {(shape, tuple(dash)) for shape, dash in both}
    assert len(looks) == 30


def test_a_panel_for_each_task_with_the_same_series() -> None:
    points = [CurvePoint(x, x, s, panel=p) for p in ("pos", "ner") for s in ("elmo", "bert") for x in (0, 1)]
    spec = draw_lines([*points, CurvePoint(0, 9, "static", panel="ner")], whole=True).to_dict()
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["pos", "ner"]
    for panel in spec["concat"]:  # a series looks the same in both, though one panel lacks the third
        assert scales_of(panel)["shape"]["domain"] == ["elmo", "bert", "static"]
    shown = [{row["panel"] for row in spec["datasets"][panel["data"]["name"]]} for panel in spec["concat"]]
    assert shown == [{"pos"}, {"ner"}]


def test_what_cannot_be_drawn_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in .html, .svg, .pdf, .png or .json"):
        save_chart(CHARTS["mixes"](), tmp_path / "chart.bmp")
    with pytest.raises(InputError, match="nothing to draw"):
        draw_bars([])
    with pytest.raises(InputError, match="2 shares for 3 layers"):
        draw_mixes([MixWeights("ner", ("a", "b", "c"), (0.5, 0.5), 1.0)])


def test_without_the_library_the_pip_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[plots\]'"):
        draw_bars(VALUES)
