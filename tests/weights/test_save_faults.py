"""Saving a model while processes are killed, disks fill up and others save to the same folder."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model_files import write_model

from elmokit.weights import load_pretrained, save_pretrained

# Runs `elmokit convert` in forks of itself: one import of torch for all. Prints, for each, how it ended.
PROGRAM = """
import json, os, resource, signal, sys
from pathlib import Path

import elmokit.weights.hdf5, elmokit.weights.own
from elmokit.__main__ import main

source, target, fault, times, *options = sys.argv[1:]
ended = []
for n in range(int(times)):
    with open("said", "w") as said:
        pid = os.fork()
        if pid == 0:
            os.dup2(said.fileno(), 2)
            left = n

            def deadly(real):
                def call(*args):
                    global left
                    if left == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    left -= 1
                    return real(*args)
                return call

            if fault == "kill":
                for name in ("replace", "rename", "fsync"):
                    setattr(os, name, deadly(getattr(os, name)))
            if fault == "disk":
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (500 * (n + 1), 500 * (n + 1)))
            sys.argv = ["elmokit", "convert", source, target, *options]
            try:
                main()
            except SystemExit as error:
                os._exit(error.code or 0)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    drafts = [p.name for p in Path(target).parent.iterdir() if p.name.endswith(".tmp")]
    there = sorted(os.listdir(target)) if os.path.isdir(target) else None
    ended.append({"code": code, "said": Path("said").read_text(), "there": there, "drafts": len(drafts)})
print(json.dumps(ended))
"""
WHOLE = {"elmokit": ["README.md", "config.json", "model.safetensors"], "official": ["options.json", "weights.hdf5"]}


def convert(folder: Path, *given: object) -> list[dict[str, object]]:
    command = [sys.executable, "-c", PROGRAM, *map(str, given)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "source")


@pytest.mark.parametrize("to", ["elmokit", "official"])
def test_killed_at_any_moment_the_folder_is_whole_or_not_there(source: Path, tmp_path: Path, to: str) -> None:
    """And what one leaves behind, the next removes."""
    (tmp_path / "out").mkdir()
    ended = convert(tmp_path, source, tmp_path / "out" / "new", "kill", 30, "--to", to, "--overwrite")
    codes = [run["code"] for run in ended]
    first = codes.index(0)
    assert first > 3
    assert set(codes[:first]) == {-9}
    appeared = [run["there"] for run in ended if run["there"] is not None]
    assert all([name for name in names if not name.startswith(".")] == WHOLE[to] for names in appeared)
    assert all(run["drafts"] <= 1 for run in ended)
    assert load_pretrained(tmp_path / "out" / "new").config == load_pretrained(source).config
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.tmp")) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for run in convert(tmp_path, source, tmp_path / "out" / "new", "disk", 3):
        assert run["code"] == 2
        assert str(run["said"]).startswith(f"elmokit: {tmp_path / 'out' / 'new'}: cannot be written (File too large)")
        assert str(run["said"]).count("\n") == 1
        assert (run["there"], run["drafts"]) == (None, 0)


def test_many_savers_of_one_folder(source: Path, tmp_path: Path) -> None:
    """The last one wins; at no time is there a mixture."""
    model = load_pretrained(source)
    others = [replace(model, tensors={n: t + k for n, t in model.tensors.items()}) for k in range(4)]
    threads = [
        threading.Thread(target=lambda other=other: [save_pretrained(other, tmp_path / "own") for _ in range(5)])
        for other in others
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = load_pretrained(tmp_path / "own").tensors["lstm.0.bias"]
    assert any(torch.equal(found, other.tensors["lstm.0.bias"]) for other in others)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name.endswith(".tmp")) == []
