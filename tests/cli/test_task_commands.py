"""train, evaluate and apply as a user meets them; and a training that is killed at random points."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elmokit.tasks.catalogue import CATALOGUE

Cli = Callable[..., Any]
NAMES = ("Ann", "Bob", "Cid")
SMALL = {
    "--word-dim": 8,
    "--char-dim": 4,
    "--char-filters": "2:8",
    "--hidden": 8,
    "--layers": 1,
    "--dropout": 0.1,
    "--elmo-dropout": 0.1,
    "--batch-size": 8,
    "--learning-rate": 0.02,
}


def options(**changes: object) -> list[object]:
    given = {**SMALL, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    return [part for pair in given.items() for part in pair]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with train.txt and dev.txt: capitalised words are names."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    rng = random.Random(1)
    for part, n in (("train", 40), ("dev", 10)):
        sentences = []
        for _ in range(n):
            words = [rng.choice([*NAMES, "sees", "the", "cat", "left", "."]) for _ in range(rng.randint(1, 6))]
            sentences.append("".join(f"{w} {'B-PER' if w in NAMES else 'O'}\n" for w in words))
        (tmp_path / f"{part}.txt").write_text("\n".join(sentences), encoding="utf-8")
    return tmp_path


def command(data: Path, model_folder: Path, output: Path, *more: object) -> list[object]:
    files = ["--train", data / "train.txt", "--dev", data / "dev.txt", "-o", output]
    return ["train", "ner", *files, "-m", model_folder, "--device", "cpu", *more]


@pytest.mark.parametrize("empty", ["train", "dev"])
def test_a_file_without_examples_is_told(cli: Cli, data: Path, model_folder: Path, empty: str) -> None:
    (data / f"{empty}.txt").write_text("")
    done = cli(*command(data, model_folder, data / "model"))
    assert done.code == 2
    assert f"{empty}.txt: holds no examples" in done.err
    assert not (data / "model").exists()


def test_train_evaluate_and_apply(cli: Cli, data: Path, model_folder: Path) -> None:
    output = data / "model"
    trained = cli(*command(data, model_folder, output, *options(epochs=6)))
    assert trained.code == 0, trained.err
    assert "ner: 40 examples to train on, 10 to score on" in trained.err
    assert "epoch   1" in trained.err
    assert "mix at the input: layer weights" in trained.err
    assert not (output / "checkpoint.pt").exists()
    assert list((data / "cache" / "layers").glob("*.npy"))
    scored = cli("evaluate", output, data / "dev.txt", "--json")
    scores = json.loads(scored.out)
    assert scores["F1"] > 0.9
    assert f"F1 {100 * scores['F1']:.2f}" in trained.err  # the saved model scores as it did in training
    assert "precision" in cli("evaluate", output, data / "dev.txt").out
    told = cli("info", output).out
    assert f"F1 {100 * scores['F1']:.2f}" in told
    assert "at the input: layer weights" in told
    assert json.loads(cli("info", output, "--json").out)["task"] == "ner"
    shown = cli("apply", output, "Ann sees Bob.")
    assert shown.out.strip() == "[PER Ann] sees [PER Bob]."
    (data / "letter.txt").write_text("the cat. Cid sees Ann\n\n", encoding="utf-8")
    assert cli("apply", output, data / "letter.txt", "-o", data / "found.jsonl").code == 0
    records = [json.loads(line) for line in (data / "found.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(s["text"], s["start"], s["end"]) for s in records[1]["spans"]] == [("Cid", 9, 12), ("Ann", 18, 21)]
    assert cli("apply", output, "Ann left", "-o", data / "found.conll").code == 0
    assert (data / "found.conll").read_text(encoding="utf-8") == "Ann\tB-PER\nleft\tO\n\n"
    printed = cli("apply", output, "Ann left. Bob sees\nCid.", "--conll")
    assert printed.out == "Ann\tB-PER\nleft\tO\n.\tO\n\nBob\tB-PER\nsees\tO\nCid\tB-PER\n.\tO\n\n"
    paragraph = "Ann left. Bob sees\nCid."
    for nothing in ("", "  "):
        empty = cli("apply", output, nothing, "--json")
        assert (empty.code, empty.out, empty.err.strip()) == (0, "", "the input held no sentences")
    records = [json.loads(line) for line in cli("apply", output, paragraph, "--json").out.splitlines()]
    spans = [span for record in records for span in record["spans"]]
    assert [paragraph[span["start"] : span["end"]] for span in spans] == ["Ann", "Bob", "Cid"]
    assert cli("apply", output, "Ann", "--conll", "--json").code == 2
    again = cli(*command(data, model_folder, output, *options(epochs=6)))
    assert "already trained" in again.err
    other = cli(*command(data, model_folder, output, *options(epochs=2)))
    assert (other.code, "trained with other settings" in other.err) == (2, True)
    anew = cli(*command(data, model_folder, output, *options(epochs=1), "--restart", "--with-encoder"))
    assert anew.code == 0
    assert (output / "encoder" / "config.json").is_file()


def test_settings_from_a_file(cli: Cli, data: Path, model_folder: Path) -> None:
    text = 'hidden = 8\nlayers = 1\nepochs = 2\n[features]\nelmo_at = "none"\nchar_filters = [[2, 4]]\nword_dim = 4\n'
    (data / "my.toml").write_text(text, encoding="utf-8")
    made = cli(*command(data, model_folder, data / "model", "--config", data / "my.toml", "--epochs", 1))
    assert made.code == 0, made.err
    config = json.loads((data / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["encoder"] is None
    assert config["setup"]["training"]["epochs"] == 1
    assert config["network"]["features"]["char_filters"] == [[2, 4]]
    (data / "my.toml").write_text("hiden = 8\n", encoding="utf-8")
    told = cli(*command(data, model_folder, data / "other", "--config", data / "my.toml"))
    assert (told.code, "unknown field 'hiden'" in told.err) == (2, True)


def test_mistakes_are_told_in_a_line(cli: Cli, data: Path, model_folder: Path) -> None:
    told = cli("train", "nerr", "--help")
    assert (told.code, "no task 'nerr'; available are ner, chunk" in told.err) == (2, True)
    (data / "dev.txt").write_text("a O\nb\n", encoding="utf-8")
    told = cli(*command(data, model_folder, data / "model"))
    assert (told.code, "dev.txt, line 2: has 1 columns" in told.err) == (2, True)
    told = cli("evaluate", data / "nothing", data / "train.txt")
    assert (told.code, "no task model" in told.err) == (2, True)
    told = cli("apply", data, "text", "-o", data / "out.txt")
    assert (told.code, ".jsonl or .conll" in told.err) == (2, True)


@pytest.mark.parametrize("name", ["", *CATALOGUE])
def test_help_fits_and_keeps_its_examples(name: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = [line.rstrip() for line in cli("train", *([name] if name else []), "--help").out.splitlines()]
    assert max(map(len, shown)) <= 80
    example = f"elmokit train {name or 'ner'} --train"
    assert any(line.strip().startswith(example) for line in shown)
    if not name:
        assert all(any(line.strip().startswith(task) for line in shown) for task in CATALOGUE)


def test_listing_tasks_loads_no_torch() -> None:
    code = (
        "import sys; from elmokit.cli import app; app(['train', '--help'], standalone_mode=False); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_killed_at_random_points_it_ends_the_same(cli: Cli, data: Path, model_folder: Path) -> None:
    """SIGKILL, again and again, then a run to the end: every byte of the weights is that of a run never killed."""
    long = options(epochs=12, patience=12)
    whole = data / "whole"
    assert cli(*command(data, model_folder, whole, *long)).code == 0
    rng, killed = random.Random(7), data / "killed"
    hits = 0
    arguments = [str(part) for part in command(data, model_folder, killed, *long)]
    for _ in range(3):
        before = _stamp(killed)
        running = subprocess.Popen([sys.executable, "-m", "elmokit", *arguments], stderr=subprocess.DEVNULL)
        end = time.monotonic() + 180
        while _stamp(killed) == before and running.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        running.send_signal(signal.SIGKILL)
        hits += running.wait() == -signal.SIGKILL
    assert hits
    assert cli(*command(data, model_folder, killed, *long)).code == 0
    for name in ("weights.safetensors", "words.txt"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    logs = [json.loads((folder / "training.json").read_text(encoding="utf-8")) for folder in (whole, killed)]
    assert [{**e, "seconds": 0} for e in logs[0]] == [{**e, "seconds": 0} for e in logs[1]]


def _stamp(folder: Path) -> int:
    """Changes with every checkpoint."""
    checkpoint = folder / "checkpoint.pt"
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
