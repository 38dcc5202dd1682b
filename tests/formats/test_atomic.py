import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import InputError
from elmokit.formats.atomic import atomic_folder, atomic_path, atomic_write, sweep_drafts, write_text

HOLD = """
import sys
from elmokit.formats.atomic import atomic_folder, atomic_path

with (atomic_path if sys.argv[1] == "file" else lambda p: atomic_folder(p, last="z"))(sys.argv[2]) as part:
    (part if sys.argv[1] == "file" else part / "a").write_text("half")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts processes that hold a draft open until their input ends or they are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, kind, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_replaces_when_done(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path) as stream:
        stream.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as stream:
        raise error(stream.write(b"half"))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a"):
        pass
    assert os.listdir(tmp_path) == []


def test_permissions_and_long_names(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    """Also where a library makes files that their owner alone can read."""
    before = os.umask(umask)
    try:
        with atomic_path(tmp_path / "a") as part:
            os.close(os.open(part, os.O_CREAT, 0o600))
        with atomic_folder(tmp_path / "new", last="z") as draft:
            os.close(os.open(draft / "a", os.O_CREAT, 0o600))
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("a", "new", "new/a")}
    assert modes == {"a": 0o666 & ~umask, "new": 0o777 & ~umask, "new/a": 0o666 & ~umask}


def test_bytes_are_on_the_disk_before_the_name_and_the_name_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    names = {}  # by inode, since a draft's name is random

    def record(call: str) -> None:
        real: Any = getattr(os, call)

        def recorded(what: Any, *more: Any) -> None:
            place = os.fstat(what) if isinstance(what, int) else os.stat(what)
            calls.append((call, names.get(place.st_ino, "draft")))
            real(what, *more)

        monkeypatch.setattr(os, call, recorded)

    (tmp_path / "there").mkdir()
    names |= {tmp_path.stat().st_ino: "parent", (tmp_path / "there").stat().st_ino: "there"}
    for call in ("fsync", "replace", "rename"):
        record(call)
    with atomic_path(tmp_path / "a") as part:
        part.write_text("x")
        names[part.stat().st_ino] = "a"
    assert calls == [("fsync", "a"), ("replace", "a"), ("fsync", "parent")]
    for target, moves in (("new", [("rename", "draft")]), ("there", [("replace", "b"), ("replace", "a")])):
        calls.clear()
        with atomic_folder(tmp_path / target, last="a") as draft:
            for name in ("a", "b"):
                (draft / name).write_text("x")
                names[(draft / name).stat().st_ino] = name
        after = [("fsync", name) for name in ("there", "parent") if name in (target, "parent")]
        assert sorted(calls[:2]) == [("fsync", "a"), ("fsync", "b")]
        assert calls[2:] == [("fsync", "draft"), *moves, *after]


def test_folders_appear_at_once_or_file_by_file(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    with atomic_folder(target, last="b") as draft:
        for name in ("a", "b", "c"):
            (draft / name).write_text("first")
        assert not target.exists()
    (target / "mine").write_text("mine")
    with atomic_folder(target, last="b") as draft:
        (draft / "a").write_text("second")
        assert (target / "a").read_text() == "first"
    found = {part.name: part.read_text() for part in target.iterdir()}
    assert found == {"a": "second", "b": "first", "c": "first", "mine": "mine"}
    with pytest.raises(ZeroDivisionError), atomic_folder(target, last="b") as draft:
        (draft / "a").write_text(str(1 // 0))
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "never", last="b") as draft:
        (draft / "a").write_text(str(1 // 0))
    assert (target / "a").read_text() == "second"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "c", "deep", "mine", "model"]
    with pytest.raises(InputError, match="a file is there"), atomic_folder(target / "a", last="b"):
        pass


def test_folders_inside_a_folder(tmp_path: Path) -> None:
    for time in ("first", "second"):
        with atomic_folder(tmp_path / "model", last="b", replaces=("in/old",)) as draft:
            (draft / "in").mkdir()
            for name in ("in/a", "in/b", "b", *(["in/old"] if time == "first" else [])):
                (draft / name).write_text(time)
            if time == "second":
                assert (tmp_path / "model" / "in" / "a").read_text() == "first"
        (tmp_path / "model" / "in" / "mine").write_text("mine")
    found = {p.relative_to(tmp_path).as_posix(): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"model/in/a": "second", "model/in/b": "second", "model/b": "second", "model/in/mine": "mine"}
    assert (tmp_path / "model" / "in").stat().st_mode & 0o777 == (tmp_path / "model").stat().st_mode & 0o777


def test_a_folder_that_another_writer_makes_meanwhile(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model", last="b") as draft:
        (draft / "a").write_text("second")
        with atomic_folder(tmp_path / "model", last="b") as other:
            (other / "a").write_text("first")
            (other / "b").write_text("first")
    assert (tmp_path / "model" / "a").read_text() == "second"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_drafts_of_killed_processes_are_swept_and_those_of_live_ones_never(
    tmp_path: Path, hold: Callable[..., subprocess.Popen[str]], kind: str
) -> None:
    alive, killed = hold(kind, tmp_path / "a"), hold(kind, tmp_path / "a")
    assert len(os.listdir(tmp_path)) == 2
    write_text(tmp_path / "b", "")  # both are alive
    assert len(os.listdir(tmp_path)) == 3
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(os.listdir(tmp_path)) == 3
    write_text(tmp_path / "b", "")
    assert len(os.listdir(tmp_path)) == 2
    alive.communicate("")
    assert alive.returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_only_looks_like_a_draft_is_left_alone(tmp_path: Path) -> None:
    for name in (".mine.tmp", ".a.0123456789ab.txt", "a.0123456789ab.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / ".a.0123456789ab.tmp").write_text("a file")
    (tmp_path / ".link.0123456789ab.tmp").symlink_to(".mine.tmp")
    sweep_drafts(tmp_path)
    assert len(os.listdir(tmp_path)) == 5


def test_many_threads_write_and_sweep_at_once(tmp_path: Path) -> None:
    def write(k: int) -> None:
        for n in range(20):
            with atomic_folder(tmp_path / "model", last="a") as draft:
                (draft / "a").write_text(f"{k} {n}")
            write_text(tmp_path / f"{k}", f"{n}")

    threads = [threading.Thread(target=write, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(tmp_path / str(k)).read_text() for k in range(8)} == {"19"}
    assert sorted(os.listdir(tmp_path)) == [*map(str, range(8)), "model"]
    assert os.listdir(tmp_path / "model") == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_places(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        write_text(tmp_path / "a", "")


def test_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_devices_are_written_through() -> None:
    write_text(os.devnull, "gone")
    assert not Path(os.devnull).is_file()


def test_wrong_targets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"), atomic_write(tmp_path):
        pass
    with pytest.raises(InputError, match="does not exist; create it"), atomic_write(tmp_path / "no" / "a"):
        pass
