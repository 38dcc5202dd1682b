"""Several processes that write one model: the last one wins or the second is told, and there is never a mixture."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import models
from elmokit.weights import load_pretrained, save_pretrained
from elmokit.weights.own import verify_own

# Forks of one process, which begin to save at the same moment; each gives its exit status and what it said.
PROGRAM = """
import json, os, sys
import elmokit.export, elmokit.weights.hdf5, elmokit.weights.own
from elmokit.__main__ import main
import elmokit.formats.atomic as atomic

commands = json.loads(sys.argv[1])
ready, go = os.pipe(), os.pipe()
draft = atomic._draft_folder
def together(target):
    os.write(ready[1], b"!")
    os.read(go[0], 1)
    return draft(target)
atomic._draft_folder = together
children = []
for k, words in enumerate(commands):
    child = os.fork()
    if not child:
        os.dup2(os.open(f"said{k}", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv = ["elmokit", *words]
        try:
            main()
        except SystemExit as error:
            os._exit(error.code or 0)
        os._exit(0)
    children.append(child)
for _ in children:
    os.read(ready[0], 1)
os.write(go[1], b"!" * len(children) * 20)
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print(json.dumps([[code, open(f"said{k}").read()] for k, code in enumerate(ended)]))
"""


def at_once(folder: Path, *commands: tuple[object, ...]) -> list[tuple[int, str]]:
    given = json.dumps([[*map(str, words)] for words in commands])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    model = models.tiny().pretrained
    return [
        save_pretrained(replace(model, tensors={n: t + k for n, t in model.tensors.items()}), tmp_path / f"source{k}")
        for k in range(4)
    ]


def test_one_conversion_is_told_that_the_other_was_there_first(sources: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = at_once(tmp_path, *(("convert", source, out) for source in sources))
    assert sorted(code for code, _ in ended) == [0, 2, 2, 2]
    for code, said in ended:
        assert code == 0 or "is there already; give another folder, or overwrite it" in said
    verify_own(out)
    (winner,) = [source for source, (code, _) in zip(sources, ended, strict=True) if code == 0]
    name = "lstm.0.bias"
    assert np.array_equal(load_pretrained(out).tensors[name], load_pretrained(winner).tensors[name])


def test_conversions_that_may_overwrite(sources: list[Path], tmp_path: Path) -> None:
    out = save_pretrained(models.tiny().pretrained, tmp_path / "out")
    ended = at_once(tmp_path, *(("convert", source, out, "--overwrite") for source in sources))
    assert [code for code, _ in ended] == [0] * 4, ended
    verify_own(out)
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def test_exports(sources: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'elmokit[onnx]'")
    from elmokit.export.described import Description

    out = tmp_path / "out"
    ended = at_once(tmp_path, *(("export", source, "-o", out) for source in sources[:2]))
    assert sorted(code for code, _ in ended) == [0, 2], ended
    ended = at_once(tmp_path, *(("export", source, "-o", out, "--overwrite") for source in sources[:3]))
    assert [code for code, _ in ended] == [0] * 3, ended
    assert Description.read(out).checksum  # compares it
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.onnx"]
