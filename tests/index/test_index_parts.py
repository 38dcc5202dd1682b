"""Text added to an index in parts, without Ray: the same rows as in one go, also after a kill at any place."""

import json
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit import Elmo, Index
from elmokit.errors import FormatError, InputError
from elmokit.formats.parts import Part, plan_parts
from elmokit.index import IndexSettings
from elmokit.index.parts import PartsRun, SegmentMaker, SegmentOptions, adding_parts

pytest.importorskip("pyarrow")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    Elmo(models.tiny().pretrained, device="cpu").save_pretrained(tmp_path / "model")
    rows = [json.dumps({"text": f"the cat {'sat ' * (k % 5)} on mat {k}. It ran."}) for k in range(30)]
    rows[7] = "{"
    rows[8:12] = [json.dumps({"text": text}) for text in ("", ".", "", "?")]  # a part without a word
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    return tmp_path


def options_of(place: Path) -> SegmentOptions:
    return SegmentOptions(model=str(place / "model"), device="cpu")


def parts_of(place: Path) -> list[Part]:
    return plan_parts([str(place / "rows.jsonl")], part_rows=4)


def add(place: Path, *, limit: int | None = None, restart: bool = False, options: SegmentOptions | None = None) -> None:
    """Adds the rows to place/index as a driver does; with `limit` it ends after so many parts."""
    options = options or options_of(place)
    elmo, parts, folder = Elmo.from_pretrained(place / "model", device="cpu"), parts_of(place), place / "index"
    Index.begin(elmo, folder)
    given = {"name": "rows", "restart": restart, "mix_arithmetic": False, "arithmetic": elmo.arithmetic}
    with adding_parts(folder, elmo, parts, options, **given) as run:
        assert run is not None
        maker = SegmentMaker(run.staged, run.run.number, run.run.manifest, options)
        for part in [part for part in parts if part.number not in run.read()][:limit]:
            maker(part)
        if limit is None:
            run.join("rows")


def whole(place: Path) -> Index:
    elmo = Elmo.from_pretrained(place / "model", device="cpu")
    texts = [json.loads(line)["text"] for line in (place / "rows.jsonl").read_text().splitlines() if line != "{"]
    return Index.build(elmo, [s for text in texts for s in elmo.tokenizer.split(text)], place / "whole")


def compare(place: Path) -> None:
    found, expected = Index.open(place / "index"), whole(place)
    assert found.finished
    assert len(found) == len(expected)
    rows = range(len(found))
    assert [found.occurrence(k) for k in rows] == [expected.occurrence(k) for k in rows]
    np.testing.assert_allclose(found.vectors(rows), expected.vectors(rows), atol=0.02)
    assert json.loads((place / "index" / "bad-000000.jsonl").read_text())["line"] == 8
    assert not list((place / "index").glob("run-*"))


def test_parts_make_the_same_index(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 8)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 10)  # several segments in a part
    add(place)
    compare(place)
    assert len(Index.open(place / "index").segments) > len(parts_of(place))


def test_a_run_that_was_killed_resumes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(place, limit=3)
    staged = next((place / "index").glob("run-*"))
    reports = [staged / f"part-{k:06d}.json" for k in range(3)]
    reports[2].write_bytes(reports[0].read_bytes())  # of another part
    reports[0].write_text(json.dumps(json.loads(reports[0].read_text()) | {"segments": "1"}))
    reports[1].write_text("{")  # damaged: made again
    plan = (staged / "plan.json").read_text()
    for damaged in ("{", "[]"):
        (staged / "plan.json").write_text(damaged)
        with pytest.raises(FormatError, match=r"plan\.json: .*start again with --restart"):
            add(place)
    (staged / "plan.json").write_text(plan)
    with pytest.raises(InputError, match="with another lines"):
        add(place, options=SegmentOptions(model=str(place / "model"), device="cpu", lines="sentences"))
    elmo = Elmo.from_pretrained(place / "model", device="cpu")
    with pytest.raises(InputError, match="began with Ray and was not finished"):
        Index.open(place / "index").grow(elmo, ["the cat"])
    renamed, rename = [], Path.rename

    def dying(path: Path, target: Path) -> Path:
        if "segment-000003" in target.name and not renamed:
            renamed.append(path)
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", dying)
    with pytest.raises(KeyboardInterrupt):  # killed while the segments join
        add(place)
    assert len(Index.open(place / "index").segments) == 3
    assert not Index.open(place / "index").finished
    add(place)
    compare(place)


def test_restart_drops_what_was_made(place: Path) -> None:
    add(place, limit=2)
    earlier = next((place / "index").glob("run-*"))
    add(place, restart=True)
    assert not earlier.exists()
    compare(place)


def test_what_parts_cannot_do_is_said(place: Path) -> None:
    elmo = Elmo.from_pretrained(place / "model", device="cpu")
    folder, given = place / "index", {"name": "", "restart": False, "mix_arithmetic": False, "arithmetic": "x"}
    for name, settings in (("few", IndexSettings(per_word=2)), ("fields", IndexSettings(keep=("file",)))):
        Index.begin(elmo, folder / name, settings=settings)
        with (
            pytest.raises(InputError, match="add the text without Ray"),
            adding_parts(folder / name, elmo, [], options_of(place), **given),
        ):
            pass
    add_local = Index.begin(elmo, place / "other")
    add_local.grow(elmo, ["the cat"], name="a")
    with adding_parts(
        place / "other", elmo, parts_of(place), options_of(place), **given | {"mix_arithmetic": True}
    ) as run:
        assert isinstance(run, PartsRun)
        with pytest.raises(FormatError, match="8 of 8 parts were not made"):
            run.join("")
