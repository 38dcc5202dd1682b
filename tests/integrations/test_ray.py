"""Embedding with real Ray: the same rows as without it, exactly once, whatever is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import models
from elmokit import Elmo
from elmokit.store.parts import read_manifest

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray")
pq = pytest.importorskip("pyarrow.parquet")

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "one", "dog", "ran", "to", "it"]
PROGRAM = """
import sys
from elmokit.integrations.ray import embed
done = embed(sys.argv[1:2], sys.argv[2], model=sys.argv[3], workers=2, part_rows=4, device="cpu",
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


def compare(place: Path, expected: dict[int, Any]) -> None:
    """Every row is there once, in its order, with its vectors; bad rows are set aside."""
    parts = sorted(place.glob("part-*.parquet"))
    assert len(parts) == 250
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
    assert (stated["rows"], stated["bad"], stated["parts"]) == (1000, 2, 250)
    assert stated["tokens"] == sum(map(len, expected.values()))


def start(folder: Path, place: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", PROGRAM, str(folder / "rows.jsonl"), str(place), str(folder / "model")]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


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


@pytest.mark.slow
def test_the_driver_is_killed_at_ten_random_moments(folder: Path, expected: dict[int, Any], tmp_path: Path) -> None:
    rng, place, killed = random.Random(11), tmp_path / "vectors", 0
    for _ in range(10):
        with start(folder, place) as run:
            assert run.stdout is not None
            wanted = rng.randrange(4)  # parts that this run may finish before it is killed
            for seen, line in enumerate(run.stdout, 1):
                if line.startswith("finished"):
                    break
                if seen > wanted:
                    time.sleep(rng.random() / 5)
                    os.kill(run.pid, signal.SIGKILL)
                    killed += 1
                    break
            run.wait(900)
    assert killed >= 5
    with start(folder, place) as run:
        output, _ = run.communicate(timeout=900)
    assert output.splitlines()[-1] == "finished 1000 2"
    compare(place, expected)


@pytest.mark.slow
def test_a_worker_is_killed_at_ten_random_moments(folder: Path, expected: dict[int, Any], tmp_path: Path) -> None:
    rng, place, killed = random.Random(12), tmp_path / "vectors", 0
    while killed < 10:
        with start(folder, place) as run:
            assert run.stdout is not None
            for line in run.stdout:
                if line.startswith("finished"):
                    break
                if killed < 10 and rng.random() < 0.5 and (there := workers_of(run.pid)):
                    os.kill(rng.choice(there), signal.SIGKILL)
                    killed += 1
            run.wait(900)
        if killed < 10:
            for part in place.glob("part-*.parquet"):
                part.unlink()
    compare(place, expected)


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


def test_the_command_line(folder: Path, expected: dict[int, Any], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elmokit", "embed", str(folder / "rows.jsonl"), "-o", str(tmp_path / "vectors")]
    command += [
        "-m",
        str(folder / "model"),
        "--engine",
        "ray",
        "--workers",
        "1",
        "--part-rows",
        "25",
        "--device",
        "cpu",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "words a second" in done.stderr
    assert "bad rows: 2 (set aside in part-*.bad.jsonl)" in done.stderr
    compare(tmp_path / "vectors", expected)
    command[command.index("-o") + 1] = str(tmp_path / "a.h5")
    wrong = subprocess.run(command, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "--engine ray writes a folder of Parquet files" in wrong.stderr
