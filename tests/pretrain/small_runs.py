"""A small text, a model that trains on it in seconds, and the real commands, in this process or in one of their own."""

import contextlib
import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from elmokit.__main__ import main
from heard import heard_signals

MODEL = {"cell_dim": 16, "projection_dim": 8, "filters": "1:4,2:6,3:6", "char_dim": 4}
TRAINING = {
    "vocab_size": 60, "samples": 24, "rows": 4, "window": 6, "learning_rate": 0.01, "tokenizer": "whitespace",
    "heldout": 0.1, "valid_every": 50, "checkpoint_every": 20, "log_every": 5, "workers": 1,
}  # fmt: skip


STARTED: list[subprocess.Popen[str]] = []


def write_text(path: Path, *, sentences: int = 400, seed: int = 0) -> Path:
    """Sentences of a toy language that is easily learnt, with some words that come once."""
    dice = random.Random(seed)
    people, animals = ["Ann", "Ben", "Zoë", "Łucja"], ["cat", "dog", "horse", "owl", "fish"]
    lines = []
    for k in range(sentences):
        who, animal = dice.choice(people), dice.choice(animals)
        food = {"cat": "milk", "dog": "bones", "horse": "hay", "owl": "mice", "fish": "worms"}[animal]
        tail = dice.choice([["today"], ["every", "day"], [], [f"name{k}"]])
        lines.append(" ".join([who, "gives", "the", animal, "some", food, *tail, "."]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def flags(**fields: Any) -> list[str]:
    """As the command line has them; True and False become the two forms of a switch."""
    found = []
    for name, value in fields.items():
        flag = name.replace("_", "-")
        found += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return found


def pretraining(*paths: Path, output: Path, **changes: Any) -> list[str]:
    settings = flags(**{**MODEL, **TRAINING, **changes})
    return [
        "pretrain",
        *map(str, paths),
        "-o",
        str(output),
        "--preset",
        "tiny",
        "--device",
        "cpu",
        "--quiet",
        *settings,
    ]


def finetuning(model: Path, *paths: Path, output: Path, **changes: Any) -> list[str]:
    settings = flags(**{**TRAINING, **changes})
    return [
        "finetune",
        *map(str, paths),
        "-o",
        str(output),
        "--model",
        str(model),
        "--device",
        "cpu",
        "--quiet",
        *settings,
    ]


class Ended(NamedTuple):
    status: int
    said: str  # on standard error


def run_here(command: list[str]) -> Ended:
    """The command in this process: torch is loaded already."""
    said, status = io.StringIO(), 0
    try:
        with mock.patch.object(sys, "argv", ["elmokit", *command]), contextlib.redirect_stderr(said):
            main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Ended(status, said.getvalue())


def start(command: list[str], *, before: list[str] | None = None, gpus: bool = False) -> subprocess.Popen[str]:
    """The command in a process of its own; `before` stands in front of it, as torchrun does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if not gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    words = [*(before or [sys.executable])]
    words += ["-m", "elmokit", *command]
    with heard_signals():
        STARTED.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment))
    return STARTED[-1]


def end_all() -> None:
    """Kills what a failed test left running, and closes its pipe."""
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def end(process: subprocess.Popen[str], *, timeout: float = 300) -> Ended:
    try:
        _, said = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, said)


def log_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "log.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines[:-1]]  # behind the last newline: nothing, or what is being written


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 180
    while not any(line["step"] >= step for line in log_of(folder)):
        assert time.monotonic() < deadline, f"step {step} did not come"
        assert process is None or process.poll() is None, f"ended before step {step}: {process.communicate()}"
        time.sleep(0.005)


def losses_of(folder: Path) -> dict[int, float]:
    """By step; a step that stands twice in the log is an error."""
    lines = [(line["step"], line["loss"]) for line in log_of(folder) if "loss" in line]
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def perplexities_of(folder: Path) -> list[float]:
    return [line["perplexity"] for line in log_of(folder) if "perplexity" in line]


def checkpoint_of(folder: Path) -> dict[str, Any]:
    """The newest one."""
    content: dict[str, Any] = torch.load(max((folder / "checkpoints").glob("step-*.pt")), weights_only=True)
    return content


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, optimizer, carried state and position, bit for bit; and the saved model."""
    first, second = (checkpoint_of(folder) for folder in (a, b))
    for content in (first, second):
        del content["progress"]["seconds"]  # the one thing that depends on the clock
    assert_identical(first, second)
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        assert (a / "model" / name).read_bytes() == (b / "model" / name).read_bytes(), name


def assert_identical(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_identical(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_identical(x, y)
    else:
        assert a == b
