"""A full disk, a disk that is read-only, a second process: one line, exit status 2, and the last good state kept."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elmokit.index import Index

Cli = Callable[..., Any]
LINES = "".join(f"word{k} and some others of its kind, number {k}\n" for k in range(1500))
ADVICE = "what is finished is kept: free some space or choose another disk, and give the same command again"


def mount(*arguments: object) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1.2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=1200k", "tmpfs", folder):
        pytest.skip("may not mount a file system here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text(LINES)
    return path


@pytest.mark.parametrize(  # a Parquet file needs little at its end
    ("suffix", "at"),
    [
        *((suffix, "spool") for suffix in ("h5", "parquet", "npz", "safetensors")),
        *((suffix, "file") for suffix in ("h5", "npz", "safetensors")),
    ],
)
def test_embed_on_a_full_disk(
    cli: Cli, model_folder: Path, disk: Path, source: Path, tmp_path: Path, suffix: str, at: str
) -> None:
    out, whole = disk / f"out.{suffix}", tmp_path / f"whole.{suffix}"
    if at == "spool":
        source.write_text(LINES * 2)
    elif suffix == "h5":  # room for the vectors, and not for what says where they are
        assert mount("-o", "remount,size=1000k", disk)
    command = ("embed", source, "-m", model_folder, "--batch-tokens", 64)
    done = cli(*command, "-o", out)
    assert done.code == 2
    named = f"{out}.partial" if at == "spool" else out
    assert done.err == f"elmokit: {named}: cannot be written: No space left on device; {ADVICE}\n"
    assert [p.name for p in disk.iterdir()] == [f"{out.name}.partial"]
    assert mount("-o", "remount,size=9m", disk)
    done = cli(*command, "-o", out)
    assert done.code == 0, done.err
    assert "resuming after" in done.err
    assert cli(*command, "-o", whole).code == 0
    assert out.read_bytes() == whole.read_bytes()


def test_index_on_a_full_disk(
    cli: Cli, model_folder: Path, disk: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 1000)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 1000)
    source.write_text(LINES * 3)
    command = ("index", source, "-o", disk / "index", "-m", model_folder)
    done = cli(*command)
    assert done.code == 2
    assert done.err == f"elmokit: {disk / 'index'}: cannot be written: No space left on device; {ADVICE}\n"
    before = len(Index.open(disk / "index"))
    assert before > 0
    assert Index.open(disk / "index").verify()
    assert mount("-o", "remount,size=9m", disk)
    done = cli(*command)
    assert done.code == 0, done.err
    assert "resuming after" in done.err
    index = Index.open(disk / "index")
    assert index.finished
    assert len(index) > before


def test_a_disk_that_is_read_only(cli: Cli, model_folder: Path, disk: Path, source: Path) -> None:
    cli("index", source, "-o", disk / "index", "-m", model_folder)
    assert mount("-o", "remount,ro", disk)
    for command in (("embed", source, "-o", disk / "out.h5"), ("index", source, "-o", disk / "new")):
        done = cli(*command, "-m", model_folder)
        assert done.code == 2
        assert "Read-only file system" in done.err
        assert done.err.count("\n") == 1


def test_an_input_that_is_gone(cli: Cli, model_folder: Path, source: Path, tmp_path: Path) -> None:
    for command in (("embed", source, "-o", tmp_path / "out.h5"), ("index", source, "-o", tmp_path / "index")):
        source.unlink(missing_ok=True)
        done = cli(*command, "-m", model_folder)
        assert done.code == 2
        assert done.err.startswith(f"elmokit: {source}: no such file")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(("command", "out"), [("embed", "out.h5"), ("index", "index")])
def test_a_second_process_is_told(
    cli: Cli, process: Cli, model_folder: Path, source: Path, tmp_path: Path, command: str, out: str
) -> None:
    place = tmp_path / out
    held = tmp_path / ("out.h5.partial/manifest.json" if command == "embed" else "index/index.json")
    with process(command, "-", "-o", place, "-m", model_folder) as first:
        until = time.monotonic() + 120
        while not held.exists() or (command == "index" and '"complete": false' not in held.read_text()):
            assert first.poll() is None, first.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.05)
        second = cli(command, source, "-o", place, "-m", model_folder)
        assert second.code == 2
        assert second.err.count("\n") == 1
        assert "another run; wait for it" in second.err
        _, said = first.communicate(b"One line.\n")
        assert first.returncode == 0, said
    assert b"1 sentence," in said
