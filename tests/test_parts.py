"""Parts of text of any size, without Ray: the plan, the rows, and files that appear whole."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit import Elmo
from elmokit.errors import FormatError, InputError
from elmokit.formats.parts import Part, PartReport, WorkerReport, make_part, plan_parts, read_rows
from elmokit.store._parquet import write_parquet
from elmokit.store._records import Record
from elmokit.store.parts import (
    PartEmbedder,
    PartOptions,
    begin_parts,
    finish_parts,
    part_file,
    read_manifest,
    read_part,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=("Cs",)), max_size=5), max_size=12
    ),
    rows=st.integers(1, 5),
    ended=st.booleans(),
    packed=st.booleans(),
)
def test_parts_hold_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], rows: int, ended: bool, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / ("a.txt.gz" if packed else "a.txt")
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.removesuffix("\n").split("\n") if text else []
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    parts = plan_parts([str(path), str(path)], part_rows=rows)
    found = [row for part in parts for row in read_rows(part)]
    assert [row.text for row in found] == expected * 2
    assert [row.number for row in found] == list(range(2 * len(expected)))
    assert [row.line for row in found] == 2 * list(range(len(expected)))
    assert all(1 <= part.rows <= rows for part in parts)


@pytest.mark.parametrize(("rows", "most", "parts"), [(99, 50, 2), (6400, 100, 64), (200_000, 2000, 100)])
def test_parts_are_small_enough_to_keep_many_workers_busy(tmp_path: Path, rows: int, most: int, parts: int) -> None:
    (tmp_path / "a.txt").write_text("a\n" * rows)
    found = plan_parts([str(tmp_path / "a.txt")])
    assert (max(part.rows for part in found), len(found), sum(part.rows for part in found)) == (most, parts, rows)


def test_what_a_worker_has_made() -> None:
    first, report = WorkerReport(), PartReport(3, 10, 90, 0, 1)
    for _ in range(2):
        made, spent = make_part(lambda part: report, Part(3, 0, 10, "a.txt", 0, 0))
        assert made is report
        first.add(made, spent)
    assert (first.parts, first.tokens) == (2, 180)
    assert 0 <= first.busy <= first.ended - first.began
    assert spent.ended == first.ended
    assert spent.worker.endswith(f":{os.getpid()}")


def test_rows_of_parquet_over_row_groups(tmp_path: Path) -> None:
    values = [None if k == 4 else f"text {k}" for k in range(11)]
    pq.write_table(pa.table({"body": values, "n": range(11)}), tmp_path / "a.parquet", row_group_size=3)
    parts = plan_parts([str(tmp_path / "a.parquet")], part_rows=4)
    assert [part.rows for part in parts] == [4, 4, 3]
    found = [row for part in parts for row in read_rows(part, field="body")]
    assert [row.text for row in found] == values
    assert [(row.number, row.line) for row in found if row.wrong] == [(4, 4)]
    with pytest.raises(InputError, match="no column 'text'; it has body, n"):
        list(read_rows(parts[0]))


def test_bad_rows_have_their_places_in_every_part_of_every_file(tmp_path: Path) -> None:
    wrong = ["{", '{"other": 1}', '["text"]', '{"text": 3}', '{"text": ["a", 1]}']
    (tmp_path / "a.jsonl").write_text("\n".join(wrong))
    file = (tmp_path / "a.jsonl").as_uri()  # an address, as that of a bucket
    assert file.startswith("file://")
    found = [row for part in plan_parts([file, file], part_rows=2) for row in read_rows(part)]
    assert [row.number for row in found] == list(range(10))
    assert [row.line for row in found] == 2 * list(range(5))
    assert [row.text for row in found] == [None] * 10
    said = [row.wrong.split(":")[0] for row in found[:5]]
    assert said == [
        "not JSON",
        "no field 'text'",
        "no field 'text'",
        *(f"{t}, expected a text or a list of tokens" for t in ("int", "list")),
    ]
    (tmp_path / "folder.txt").mkdir()
    for nothing in (tmp_path / "folder.txt", tmp_path / "none.txt"):
        with pytest.raises(InputError, match="no such file"):
            plan_parts([nothing.as_uri()])


def test_tokens_are_kept_where_the_text_is_tokenized(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The cat's mat.\n")
    elmo = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    elmo.save_pretrained(tmp_path / "model")
    parts = plan_parts([str(tmp_path / "a.txt")])
    for tokenized, tokens in ((True, ["The", "cat's", "mat."]), (False, ["The", "cat", "'s", "mat", "."])):
        options = PartOptions(model=str(tmp_path / "model"), device="cpu", tokenized=tokenized)
        PartEmbedder(tmp_path, options)(parts[0])
        assert pq.read_table(part_file(tmp_path, parts[0])).to_pydict()["token"] == tokens


def test_small_vectors_make_no_large_row_groups(tmp_path: Path) -> None:
    """Their tokens are in memory until a group is written."""
    tokens = ("a",) * 16_384
    records = [Record("", tokens, np.zeros((len(tokens), 1), np.float32))] * 3
    write_parquet(tmp_path / "a.parquet", records, axes=(1,), metadata={})
    groups = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert [groups.row_group(k).num_rows for k in range(groups.num_row_groups)] == [32_768, 16_384]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("layers", ["average", "all"])
def test_rows_of_a_part_have_the_encoders_vectors(device: str, layers: str, tmp_path: Path) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    words = ["the", "cat", "sat", "on", "a", "mat", ""]
    rows = [" ".join(words[k % 7 : k % 5 + k % 7]) for k in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    elmo = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    elmo.save_pretrained(tmp_path / "model")
    embedder = PartEmbedder(
        tmp_path, PartOptions(model=str(tmp_path / "model"), layers=layers, device=device, dtype="float32")
    )
    expected = elmo.encode_tokens(rows, layers=layers)
    for part in plan_parts([str(tmp_path / "a.txt")], part_rows=70):
        report = embedder(part)
        table = pq.read_table(part_file(tmp_path, part)).to_pydict()
        wanted = range(part.first, part.first + part.rows)
        assert table["sentence"] == [k for k in wanted for _ in range(len(rows[k].split()))]
        assert table["token"] == [word for k in wanted for word in rows[k].split()]
        assert report.tokens == len(table["token"])
        for layer in range(3 if layers == "all" else 1):
            found = np.array(table[f"layer{layer}" if layers == "all" else "vector"])
            own = [expected[k][layer] if layers == "all" else expected[k] for k in wanted]
            np.testing.assert_allclose(found, np.concatenate(own), atol=1e-3 if device == "cuda" else 1e-5)


def test_bad_rows_are_set_aside(tmp_path: Path) -> None:
    rows = ['{"text": "the cat"}', "{", '{"other": 1}', '{"text": 3}', '{"text": ["a", "mat"]}', '{"text": ""}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    elmo = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    elmo.save_pretrained(tmp_path / "model")
    options = PartOptions(model=str(tmp_path / "model"), layers="top", device="cpu")
    parts = plan_parts([str(tmp_path / "a.jsonl")])
    folder = tmp_path / "out"
    assert not begin_parts(folder, parts, options, elmo.fingerprint, elmo.arithmetic, restart=False)
    report = PartEmbedder(folder, options)(parts[0])
    assert (report.rows, report.tokens, report.empty, report.bad) == (6, 4, 1, 3)
    assert read_part(part_file(folder, parts[0])) == report
    bad = [json.loads(line) for line in (folder / "part-000000.bad.jsonl").read_text().splitlines()]
    assert [(row["row"], row["line"]) for row in bad] == [(1, 2), (2, 3), (3, 4)]
    assert "int, expected a text" in bad[2]["why"]
    table = pq.read_table(part_file(folder, parts[0])).to_pydict()
    assert table["sentence"] == [0, 0, 4, 4]
    expected = np.concatenate(elmo.encode_tokens([["the", "cat"], ["a", "mat"]], layers="top"))
    np.testing.assert_allclose(np.array(table["vector"]), expected, atol=1e-5)
    finish_parts(folder, [report])
    assert read_manifest(folder)["bad"] == 3
    assert begin_parts(folder, parts, options, elmo.fingerprint, elmo.arithmetic, restart=False)


def test_a_run_with_other_settings_is_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    elmo = Elmo(models.tiny(seed=1).pretrained, device="cpu")
    parts = plan_parts([str(tmp_path / "a.txt")], part_rows=1)
    folder = tmp_path / "out"
    begin_parts(folder, parts, PartOptions(), elmo.fingerprint, elmo.arithmetic, restart=False)
    with pytest.raises(InputError, match="another layers"):
        begin_parts(folder, parts, PartOptions(layers="top"), elmo.fingerprint, elmo.arithmetic, restart=False)
    with pytest.raises(InputError, match="another input"):
        begin_parts(folder, parts[:1], PartOptions(), elmo.fingerprint, elmo.arithmetic, restart=False)
    with pytest.raises(FormatError, match="0 of 2 parts were made"):
        finish_parts(folder, [])
    assert not begin_parts(folder, parts, PartOptions(layers="top"), elmo.fingerprint, elmo.arithmetic, restart=True)
    with pytest.raises(InputError, match="a folder of other things"):
        begin_parts(tmp_path, parts, PartOptions(), elmo.fingerprint, elmo.arithmetic, restart=False)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.parquet"])
def test_the_same_file_with_other_text_is_another_input(name: str, tmp_path: Path) -> None:
    def plan(text: str) -> list[Part]:
        if name.endswith("parquet"):
            pq.write_table(pa.table({"text": text.split()}), tmp_path / name)
        else:
            (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        return plan_parts([str(tmp_path / name)])

    first = plan("one\ntwo\n")
    begin_parts(tmp_path / "out", first, PartOptions(), "", "", restart=False)
    assert plan("one\ntwo\n") == first
    for other in ("one\ntwi\n", "one\ntwenty\n"):
        with pytest.raises(InputError, match="another input"):
            begin_parts(tmp_path / "out", plan(other), PartOptions(), "", "", restart=False)


def test_a_damaged_part_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "part-000000.parquet"
    assert read_part(path) is None
    path.write_bytes(b"PAR1 and nothing else")
    assert read_part(path) is None
    good = {"number": 0, "rows": 2, "tokens": 5, "empty": 0, "bad": 0}
    for stated in (good, good | {"tokens": "5"}, good | {"rows": -1}, good | {"number": 1}, [], {"number": 0}):
        write_parquet(path, [], axes=(1,), metadata={"elmokit.part": json.dumps(stated)})
        assert (read_part(path) is not None) == (stated is good)


def test_a_manifest_of_something_else_is_refused(tmp_path: Path) -> None:
    good = {"format": "elmokit parts", "version": 1, "run": {}, "parts": 1, "complete": False}
    (tmp_path / "manifest.json").write_text(json.dumps(good))
    assert read_manifest(tmp_path) == good
    for wrong in ([], good | {"format": "other"}, good | {"version": 2}):
        (tmp_path / "manifest.json").write_text(json.dumps(wrong))
        with pytest.raises(FormatError, match=r"not a manifest of parts|expected an object"):
            read_manifest(tmp_path)
    for name, damaged in (("run", None), ("run", "x"), ("parts", -1), ("complete", "yes")):
        content = {key: value for key, value in good.items() if key != name}
        (tmp_path / "manifest.json").write_text(json.dumps(content if damaged is None else content | {name: damaged}))
        with pytest.raises(FormatError, match=name):
            read_manifest(tmp_path)


def test_what_cannot_be_planned_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot tell the format"):
        plan_parts([str(tmp_path / "a.docx")])
    with pytest.raises(InputError, match="no such file"):
        plan_parts([str(tmp_path / "a.txt")])
    (tmp_path / "b.txt").write_text("one\n")
    with pytest.raises(InputError, match="shorter than it was"):
        list(read_rows(Part(0, 0, 5, str(tmp_path / "b.txt"), 0, 0)))
