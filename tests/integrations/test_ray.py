"""Embedding and indexing with real Ray: the same rows as without it, exactly once, whatever is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recipes
import torch

import models
from elmokit import Elmo, Index
from elmokit.errors import InputError
from elmokit.store.parts import Part, PartReport, plan_parts, read_manifest

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "one", "dog", "ran", "to", "it"]
PROGRAM = """
import sys
from elmokit.integrations import ray
run = getattr(ray, sys.argv[4])
done = run(sys.argv[1:2], sys.argv[2], model=sys.argv[3], workers=2, part_rows=4, device="cpu",
           told=lambda report: print(report.done, flush=True))
print("finished", done.rows, done.bad, flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ray")
    Elmo(models.tiny(seed=5).pretrained, device="cpu").save_pretrained(place / "model")
    rng = random.Random(3)
    rows = [{"text": " ".join(rng.choices(WORDS, k=rng.randrange(0, 12))), "n": k} for k in range(1000)]
    lines = [json.dumps(row) for row in rows]
    lines[17], lines[503] = "{not JSON", json.dumps({"other": 1})
    (place / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return place


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, Any]:
    """The vectors of each row, embedded in this process; bad rows are missing."""
    elmo = Elmo.from_pretrained(folder / "model", device="cpu")
    texts = {}
    for k, line in enumerate((folder / "rows.jsonl").read_text().splitlines()):
        if k not in (17, 503):
            texts[k] = json.loads(line)["text"]
    return dict(zip(texts, elmo.encode_tokens(list(texts.values())), strict=True))


def compare(place: Path, expected: dict[int, Any], *, made: int = 250) -> None:
    """Every row is there once, in its order, with its vectors; bad rows are set aside."""
    parts = sorted(place.glob("part-*.parquet"))
    assert len(parts) == made
    numbers: list[int] = []
    for part in parts:
        table = pq.read_table(part).to_pydict()
        rows: dict[int, list[Any]] = {}
        for number, position, vector in zip(table["sentence"], table["position"], table["vector"], strict=True):
            assert position == len(rows.setdefault(number, []))
            rows[number].append(vector)
        for number, vectors in rows.items():
            np.testing.assert_allclose(np.array(vectors), expected[number], atol=1e-5)
        numbers += rows
    assert numbers == [number for number, vectors in expected.items() if len(vectors)]
    bad = [json.loads(line) for path in sorted(place.glob("*.bad.jsonl")) for line in path.read_text().splitlines()]
    assert [(row["row"], row["line"]) for row in bad] == [(17, 18), (503, 504)]
    stated = read_manifest(place)
    assert stated["complete"]
    assert (stated["rows"], stated["bad"], stated["parts"]) == (1000, 2, made)
    assert stated["tokens"] == sum(map(len, expected.values()))


@pytest.fixture(scope="module")
def indexed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The index of the good rows, made in this process."""
    elmo = Elmo.from_pretrained(folder / "model", device="cpu")
    lines = (folder / "rows.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for k, line in enumerate(lines) if k not in (17, 503)]
    return Index.build(elmo, texts, tmp_path_factory.mktemp("indexed") / "index")


def compare_index(place: Path, indexed: Index, *, of_parts: bool = True) -> None:
    """Every occurrence is there once, in its order, with its vector; search finds the same; bad rows are set aside."""
    found = Index.open(place)
    assert found.finished
    assert found.verify()
    assert len(found) == len(indexed) > 4000
    assert [found.occurrence(k) for k in range(len(found))] == [indexed.occurrence(k) for k in range(len(indexed))]
    every = range(len(indexed))
    np.testing.assert_allclose(
        found.vectors(every), indexed.vectors(every), atol=0.02 * np.abs(indexed.mean).max() + 0.02
    )
    asked = indexed.vectors([5, 2000, 4000])
    np.testing.assert_allclose(found.search(asked).scores, indexed.search(asked).scores, atol=0.01)
    assert found.manifest.runs[0].sentences == indexed.manifest.runs[0].sentences
    bad = [json.loads(line) for line in (place / "bad-000000.jsonl").read_text().splitlines()]
    assert [(row["row"], row["line"]) for row in bad] == [(17, 18), (503, 504)]
    kept = {path.name for path in place.iterdir()} - {segment.path.name for segment in found.segments}
    assert kept - {"lock"} == {"index.json", "bad-000000.jsonl"} | {p.name for p in place.glob("types-*")}
    assert len(found.segments) > 200 or not of_parts


def start(folder: Path, place: Path, what: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, str(folder / "rows.jsonl"), str(place), str(folder / "model"), what]
    with place.with_suffix(".log").open("a") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)


def workers_of(driver: int) -> list[int]:
    """The processes of Ray's actors that belong to this driver's cluster: they inherit its session's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            title = (path / "cmdline").read_bytes()
            session = os.getsid(int(path.name))
        except OSError:
            continue
        if title.startswith(b"ray::") and b"Worker" in title and session == os.getsid(driver):
            found.append(int(path.name))
    return found


def check(what: str, place: Path, request: pytest.FixtureRequest) -> None:
    if what == "embed":
        compare(place, request.getfixturevalue("expected"))
    else:
        compare_index(place, request.getfixturevalue("indexed"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["embed", "index"])
def test_the_driver_is_killed_at_ten_random_moments(
    what: str, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng, place, killed = random.Random(11), tmp_path / "made", 0
    while killed < 10:
        with start(folder, place, what) as run:
            assert run.stdout is not None
            wanted = rng.randrange(4)  # parts that this run may finish before it is killed
            for seen, line in enumerate(run.stdout, 1):
                assert not line.startswith("finished"), "there was too little to do for ten kills"
                if seen > wanted:
                    time.sleep(rng.random() / 5)
                    os.kill(run.pid, signal.SIGKILL)
                    killed += 1
                    break
            run.wait(900)
    with start(folder, place, what) as run:
        output, _ = run.communicate(timeout=900)
    assert output.endswith("finished 1000 2\n"), place.with_suffix(".log").read_text()[-3000:]
    check(what, place, request)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["embed", "index"])
def test_a_worker_is_killed_at_ten_random_moments(
    what: str, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng, killed = random.Random(12), 0
    for attempt in count():
        place = tmp_path / f"made-{attempt}"
        with start(folder, place, what) as run:
            assert run.stdout is not None
            for line in run.stdout:
                if line.startswith("finished"):
                    break
                if killed < 10 and rng.random() < 0.5 and (there := workers_of(run.pid)):
                    os.kill(rng.choice(there), signal.SIGKILL)
                    killed += 1
            run.wait(900)
        check(what, place, request)
        if killed >= 10:
            break


def test_rows_of_every_format_and_a_dataset(folder: Path, expected: dict[int, Any], tmp_path: Path) -> None:
    import ray

    from elmokit.integrations.ray import embed

    place = tmp_path / "vectors"
    done = embed([folder / "rows.jsonl"], place, model=str(folder / "model"), workers=1, part_rows=4, device="cpu")
    assert (done.rows, done.bad, done.parts, done.resumed) == (1000, 2, 250, 0)
    compare(place, expected)
    assert embed([folder / "rows.jsonl"], place, model=str(folder / "model"), part_rows=4, device="cpu").known
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        data = ray.data.from_items([{"text": "the cat"}, {"text": None}, {"text": "a mat sat"}])
        done = embed(data, tmp_path / "other", model=str(folder / "model"), workers=1, device="cpu")
    finally:
        ray.shutdown()
    assert (done.rows, done.bad, done.tokens) == (3, 1, 5)


def test_no_part_waits_at_a_worker_while_another_has_none(folder: Path, tmp_path: Path) -> None:
    """Each worker holds its part until the other has one, too."""
    import ray

    from elmokit.integrations.ray import _Team

    class Meeting:
        def __init__(self, place: Path) -> None:
            self.place = place

        def __call__(self, part: Part) -> PartReport:
            (self.place / str(part.number)).touch()
            until = time.monotonic() + 120
            while len(list(self.place.iterdir())) < 2:
                assert time.monotonic() < until, "the other part was not begun"
                time.sleep(0.05)
            return PartReport(part.number, part.rows, 7, 0, 0)

    (tmp_path / "met").mkdir()
    parts = plan_parts([str(folder / "rows.jsonl")], part_rows=500)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        team = _Team(workers=2, cpus=1, gpus=0.0, arithmetic="")
        done = team.make(parts, {}, Meeting(tmp_path / "met"), PartReport, lambda report: None)  # type: ignore[arg-type]
    finally:
        ray.shutdown()
    assert (done.done, done.tokens) == (2, 14)
    assert [(worker.parts, worker.tokens) for worker in done.workers.values()] == [(1, 7), (1, 7)]


def elmokit(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "elmokit", *map(str, arguments)], capture_output=True, text=True, timeout=900
    )


def test_the_command_line_of_embed(folder: Path, expected: dict[int, Any], tmp_path: Path) -> None:
    text, place = folder / "rows.jsonl", tmp_path / "vectors"
    given = ["-m", folder / "model", "--engine", "ray", "--workers", 1, "--part-rows", 25, "--device", "cpu"]
    done = elmokit("embed", text, "-o", place, *given)
    assert done.returncode == 0, done.stderr
    assert "40 of 40 parts" in done.stderr
    assert "words a second" in done.stderr
    assert "bad rows: 2 (set aside in part-*.bad.jsonl)" in done.stderr
    assert "\n  workers: 1, busy " in done.stderr
    compare(place, expected, made=40)
    wrong = elmokit("embed", text, "-o", tmp_path / "a.h5", *given)
    assert wrong.returncode == 2
    assert "--engine ray writes a folder of Parquet files" in wrong.stderr
    wrong = elmokit("embed", text, "-o", tmp_path / "other", "--lines", "paragraphs", *given)
    assert wrong.returncode == 2
    assert "--lines cannot be given with --engine ray" in wrong.stderr


def test_the_command_line_of_index(folder: Path, indexed: Index, tmp_path: Path) -> None:
    place = tmp_path / "index"
    given = ["--engine", "ray", "--workers", 1, "--part-rows", 25, "--device", "cpu"]
    done = elmokit("index", folder / "rows.jsonl", "-o", place, "-m", folder / "model", *given)
    assert done.returncode == 0, done.stderr
    assert "40 of 40 parts" in done.stderr
    assert "words a second" in done.stderr
    assert "bad rows: 2 (set aside in bad-000000.jsonl)" in done.stderr
    assert "\n  workers: 1, busy " in done.stderr
    compare_index(place, indexed, of_parts=False)
    again = elmokit("index", folder / "rows.jsonl", "-o", place, *given)
    assert "this text is in it already" in again.stderr
    found = elmokit("neighbors", place, "the cat sat on a mat", "--word", "cat", "-m", folder / "model")
    assert found.returncode == 0, found.stderr
    assert "cat" in found.stdout
    wrong = elmokit("index", folder / "rows.jsonl", "-o", tmp_path / "b", "--per-word", 3, "--engine", "ray")
    assert wrong.returncode == 2
    assert "--per-word cannot be given with --engine ray" in wrong.stderr


def test_more_text_and_other_runs_of_an_index(folder: Path, tmp_path: Path) -> None:
    from elmokit.integrations.ray import index

    place, options = tmp_path / "index", {"model": str(folder / "model"), "workers": 1, "device": "cpu"}
    (tmp_path / "a.txt").write_text("the cat sat. a dog ran.\n")
    (tmp_path / "b.txt").write_text("\n".join(["one mat and it"] * 9))
    index(tmp_path / "a.txt", place, **options)
    done = index(tmp_path / "b.txt", place, part_rows=2, **options)
    assert (done.parts, done.sentences, done.occurrences) == (5, 9, 36)
    assert index(tmp_path / "b.txt", place, part_rows=2, **options).known
    found = Index.open(place)
    words = [found.occurrence(k).word for k in range(10)]
    assert words == ["the", "cat", "sat", "a", "dog", "ran", "one", "mat", "and", "it"]
    elmo = Elmo.from_pretrained(folder / "model", device="cpu")
    found.grow(elmo, ["the end"], name="here")
    assert len(Index.open(place)) == 6 + 36 + 2
    with pytest.raises(InputError, match="add the text without Ray"):
        index(tmp_path / "a.txt", tmp_path / "few", settings=replace(found.settings, per_word=1), **options)


def test_a_dataset_is_read_once_and_errors_are_elmokits_own(folder: Path, tmp_path: Path) -> None:
    import ray

    from elmokit.integrations.ray import INPUT, embed, index

    options = {"model": str(folder / "model"), "workers": 1, "device": "cpu"}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        first, second = (ray.data.from_items([{"text": text}]) for text in ("the cat sat", "a dog"))
        for again in (False, True):
            assert embed(first, tmp_path / "vectors", **options).known == again
            assert index(first, tmp_path / "index", **options).known == again
        with pytest.raises(InputError, match="another input"):
            embed(second, tmp_path / "vectors", **options)
        assert index(second, tmp_path / "index", **options).occurrences == 2
        pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"^[^\n]*no column 'text'; it has body$"):
            embed(tmp_path / "a.parquet", tmp_path / "wrong", **options)
        if not torch.cuda.is_available():
            with pytest.raises(InputError, match=r"^device 'cuda' asked for[^\n]*$"):
                embed(tmp_path / "a.parquet", tmp_path / "cuda", **options | {"device": "cuda"})
        for make in (embed, index):
            place = tmp_path / f"{make.__name__}-mine"
            mine = place.with_name(f"{place.name}.{INPUT}") / "a.txt"  # files of the user's own stay
            mine.parent.mkdir()
            mine.write_text("the cat sat\n")
            make(mine, place, **options)
            assert mine.is_file()
    finally:
        ray.shutdown()
    found = Index.open(tmp_path / "index")
    assert [found.occurrence(k).word for k in range(len(found))] == ["the", "cat", "sat", "a", "dog"]
    assert {path.name for path in tmp_path.glob(f"*.{INPUT}")} == {f"embed-mine.{INPUT}", f"index-mine.{INPUT}"}


def test_a_cluster_that_starts_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/scale.md on a cluster of two nodes: the losses are those of one process."""
    from ray.cluster_utils import Cluster

    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "pretrain")
    import small_runs as runs

    text, alone, both = runs.write_text(tmp_path / "text.txt"), tmp_path / "alone", tmp_path / "both"
    settings = {"steps": 20, "dropout": 0.0, "state": "carry", "log_every": 1, "valid_every": 20}
    assert runs.run_here(runs.pretraining(text, output=alone, **settings)).status == 0
    command = runs.pretraining(text, output=both, **settings)
    changed = {"MACHINES, GPUS, CPUS": "2, 0, 1", "COMMAND": repr(command)}
    (tmp_path / "recipe.py").write_text(recipes.recipe("def torchrun", **changed))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        environment = {**os.environ, "RAY_ADDRESS": cluster.address, "OMP_NUM_THREADS": "1"}
        program = (tmp_path / "recipe.py").read_text().replace('address="auto"', f'address="{cluster.address}"')
        (tmp_path / "recipe.py").write_text(program)
        done = subprocess.run(
            [sys.executable, "recipe.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
    finally:
        cluster.shutdown()
    assert done.returncode == 0, done.stdout + done.stderr
    wanted, found = runs.losses_of(alone), runs.losses_of(both)
    assert len(wanted) == 20
    assert found.keys() == wanted.keys()
    for step, loss in found.items():
        assert loss == pytest.approx(wanted[step], rel=1e-5), step
