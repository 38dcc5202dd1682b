"""The package as users get it: a wheel, built here, in environments that hold nothing else. Needs a package index.

pytest -m slow tests/lite/test_lite_installed.py
"""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from elmokit.lite import LiteElmo
from elmokit.native import build
from elmokit.native.library import c_library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(c_library() is None, reason="nothing runs in C here"),
]

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import json
from elmokit.lite import LiteElmo
from elmokit.native.library import compiled
elmo = LiteElmo.from_pretrained()
print(json.dumps([elmo.encode("He sat on the bank.").tobytes().hex(), compiled().library.variant, elmo.source]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("wheel"), {})


def make(folder: Path, settings: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env={**os.environ, **settings})
    [made] = folder.glob("*.whl")
    return made


def install(folder: Path, *what: str) -> Path:
    """A new environment; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    for one in what:
        subprocess.run([str(python), "-m", "pip", "install", "-q", *one.split()], check=True)
    return python


def plain() -> dict[str, str]:
    """Nothing of this tree on the path."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ELMOKIT_LIBRARY")}


def run(python: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [str(python), "-c", RUN]
    return subprocess.run(command, capture_output=True, text=True, env=plain(), cwd=cwd, check=False)


def test_a_wheel_runs_without_torch(wheel: Path, tmp_path: Path) -> None:
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"elmokit/native/{build.NAME}" in names
    python = install(tmp_path / "env", "numpy", f"--no-deps {wheel}")
    listed = subprocess.run([str(python), "-m", "pip", "list", "--format=json"], capture_output=True, check=True)
    assert {package["name"] for package in json.loads(listed.stdout)} <= {"elmokit", "numpy", "pip", "setuptools"}
    ran = run(python, tmp_path)
    assert ran.returncode == 0, ran.stderr
    vectors, variant, source = json.loads(ran.stdout)
    assert source.startswith(str(tmp_path))
    library = c_library()
    assert library is not None
    assert variant == library.variant
    assert vectors == LiteElmo.from_pretrained().encode("He sat on the bank.").tobytes().hex()


def test_a_wheel_made_without_a_compiler_says_so(tmp_path: Path) -> None:
    wheel = make(tmp_path / "made", {"CC": "nothing-there"})
    assert wheel.name.endswith("-py3-none-any.whl")
    python = install(tmp_path / "env", "numpy", f"--no-deps {wheel}")
    ran = run(python, tmp_path)
    assert ran.returncode != 0
    assert "the library was not built; with a C compiler, run python" in ran.stderr
    script = next((tmp_path / "env").rglob("elmokit/native/build.py"))
    subprocess.run([str(python), str(script)], check=True, env=plain())
    assert run(python, tmp_path).returncode == 0
