"""What goes wrong outside elmokit is one line and an exit status: files, folders, caches, missing packages."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

NER = "Jane B-PER\nran O\n\n"


def elmokit(*args: object, env: dict[str, str] | None = None, largest: int | None = None, code: str = "") -> "Result":
    """A process of its own, with other variables, a limit to the size of its files, or code that runs first."""

    def limit() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    command = [sys.executable, "-c", f"{code}\nfrom elmokit.__main__ import main\nmain()"]
    return subprocess.run(
        [*command, *map(str, args)],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        preexec_fn=limit,
        timeout=300,
        check=False,
    )


Result = subprocess.CompletedProcess[str]


def assert_one_line(done: Result, *said: str, status: int = 2) -> None:
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("elmokit: ")]
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in line


def test_a_file_that_cannot_grow(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("The cat sat on the mat.\n" * 2000)
    done = elmokit("embed", tmp_path / "in.txt", "-o", tmp_path / "out.npz", "-m", model_folder, largest=10_000)
    assert_one_line(done, "File too large")
    assert not (tmp_path / "out.npz").exists()


def test_a_folder_in_the_place_of_a_file(model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "numbers.json").mkdir()
    (tmp_path / "in.txt").write_text("The bank was closed. He ran to the bank.\n")
    done = elmokit(
        "senses",
        tmp_path / "in.txt",
        "-w",
        "bank",
        "-m",
        model_folder,
        "-o",
        tmp_path / "numbers.json",
        "--device",
        "cpu",
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("elmokit: ")
    assert str(tmp_path / "numbers.json") in done.stderr


@pytest.mark.parametrize("place", ["HOME", "ELMOKIT_CACHE", "--cache"])
def test_a_cache_that_cannot_be_written(place: str, model_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # nothing can be made inside; root may write to any folder
    (tmp_path / "train.txt").write_text(NER)
    env = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "ELMOKIT_CACHE": ""}
    if place != "--cache":
        env[place] = str(tmp_path / "file")
    given = [
        "--train",
        tmp_path / "train.txt",
        "--dev",
        tmp_path / "train.txt",
        "-o",
        tmp_path / "out",
        "-m",
        model_folder,
    ]
    given += ["--cache", tmp_path / "file" / "cache"] if place == "--cache" else []
    done = elmokit("train", "ner", *given, "--quick", "--device", "cpu", env=env)
    assert_one_line(done, str(tmp_path / "file"), "cannot be written to", "--cache", "ELMOKIT_CACHE")


def test_static_vectors_need_a_cache(tmp_path: Path) -> None:
    (tmp_path / "glove.txt").write_text("the 0.1 0.2\ncat 0.3 0.4\n")
    env = {"ELMOKIT_CACHE": str(tmp_path / "glove.txt")}
    done = elmokit("embed", "the cat", "-m", tmp_path / "glove.txt", env=env)
    assert_one_line(done, "cannot be written to", "ELMOKIT_CACHE")


@pytest.mark.parametrize("package", ["torch", "numpy", "safetensors"])
def test_without_a_package_that_elmokit_needs(package: str) -> None:
    blocked = f"import sys; sys.modules[{package!r}] = None"
    done = elmokit("embed", "the cat", code=blocked)
    assert_one_line(done, f"needs {package}, which is not installed", f"pip install {package}")
    assert elmokit("--help", code=blocked).returncode == 0


def test_a_bug_is_a_traceback() -> None:
    """An import that fails inside elmokit itself is not a missing package."""
    done = elmokit("embed", "the cat", code="import sys; sys.modules['elmokit.encoders'] = None")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
