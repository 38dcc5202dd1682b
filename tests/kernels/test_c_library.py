"""The compiled library: when there is none, where it is kept, and that it lives in other processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.kernels.cpu.c import Compiled, c_library
from elmokit.kernels.cpu.c import _library as library

needs_library = pytest.mark.skipif(c_library() is None, reason="no compiler, no AVX2, or ELMOKIT_NATIVE=0")

NAMES = ("lanes", "most", "lstm", "tokens")

# Prints the same number from here, from a fork, and from workers of a pool, each with threads of its own.
SCRIPT = """
import multiprocessing, os, zlib
import torch
from elmokit.kernels import LstmRules, LstmState
from elmokit.kernels.cpu.int8 import Int8Matrix, quantise
from elmokit.kernels.cpu.c import CompiledLstm, c_library

def matrix(rows, columns):
    return Int8Matrix(*quantise(torch.linspace(-1, 1, rows * columns).sin().view(rows, columns)))

def number(_=None):
    out, _ = LAYER(X, LstmState(torch.zeros(1, 20, 7), torch.zeros(1, 20, 13)), (20, 20, 20))
    return zlib.crc32(out.numpy().tobytes())

if __name__ == "__main__":
    w_x, w_h, w_p = matrix(52, 9), matrix(52, 7), matrix(7, 13)
    LAYER = CompiledLstm(c_library(), [w_x], [w_h], torch.zeros(1, 52), [w_p], LstmRules())
    X = torch.linspace(-3, 3, 60 * 9).cos().view(1, 60, 9)
    torch.set_num_threads(3)
    print(number(), flush=True)
    if os.fork() == 0:
        print(number(), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(*pool.map(number, range(2)), number())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a compiler that does not take its time."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS))
    return tmp_path / "cache"


def ask() -> Compiled:
    """Each time anew."""
    return library.compiled.__wrapped__()


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if not path.is_dir())


class TestThereIsNone:
    def test_where_it_is_not_wanted(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_NATIVE", "0")
        assert ask().library is None
        assert not cache.exists()

    @pytest.mark.parametrize("compiler", ["nothing-there", "nothing-there --really", "'no end", "/"])
    def test_without_a_compiler(self, compiler: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", compiler)
        assert ask().library is None
        assert not cache.exists()

    @pytest.mark.parametrize("compiler", ["false", "true"])
    def test_with_a_compiler_that_fails_or_makes_nothing(
        self, compiler: str, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CC", compiler)
        assert ask().library is None
        assert files(cache) == []

    def test_with_a_compiler_that_never_ends(
        self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = tmp_path / "slow"
        slow.write_text("#!/bin/sh\nexec sleep 20\n")
        slow.chmod(0o755)
        monkeypatch.setenv("CC", str(slow))
        monkeypatch.setattr(library, "PATIENCE", 0.1)
        assert ask().library is None
        assert files(cache) == []

    def test_on_other_processors(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(library.platform, "machine", lambda: "aarch64")
        assert ask().library is None


@needs_library
class TestItIsKept:
    def test_by_what_it_is_made_of(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CC", raising=False)
        assert ask().library is not None
        [first] = files(cache)
        made = first.stat().st_mtime_ns
        monkeypatch.setenv("CC", "  ")  # as good as none
        assert ask().library is not None
        assert [(path, path.stat().st_mtime_ns) for path in files(cache)] == [(first, made)]
        monkeypatch.setattr(library, "_processor", lambda: b"another")
        assert ask().library is not None
        assert len(files(cache)) == 2

    def test_nowhere_if_the_cache_cannot_be_written_to(self, cache: Path) -> None:
        cache.write_text("a file where a folder should be")  # which stops root as well
        assert ask().library is not None
        assert cache.is_file()

    def test_nowhere_if_the_user_has_no_home(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def homeless() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(library, "default_cache", homeless)
        assert ask().library is not None

    def test_and_made_anew_if_it_is_spoilt(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert ask().library is not None
        [path] = files(cache)
        spoilt = tmp_path / "another" / path.relative_to(cache)  # the loader knows the first path, and would not look
        spoilt.parent.mkdir(parents=True)
        spoilt.write_bytes(b"no library")
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "another"))
        found = ask()
        assert found.library is not None
        assert found.library.elmokit_most() in (127, 255)
        assert found.unkept is not None
        assert "the cache cannot be used" in found.unkept


@needs_library
class TestOtherUsers:
    """Whoever can put a file into the cache could run code as this user."""

    @pytest.fixture
    def planted(self, cache: Path, tmp_path: Path) -> Path:
        """A library of that name with a function that answers 42."""
        assert ask().unkept is None
        [path] = files(cache)
        (tmp_path / "other.c").write_text("".join(f"int elmokit_{n}() {{ return 42; }}" for n in NAMES))
        planted = tmp_path / "planted" / path.relative_to(cache)  # the loader knows the first path, and would not look
        planted.parent.mkdir(parents=True, mode=0o755)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", planted, tmp_path / "other.c"], check=True)
        planted.chmod(0o755)
        return planted

    @pytest.fixture(autouse=True)
    def home(self, planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_CACHE", str(planted.parent.parent))

    def test_a_library_of_ones_own_is_loaded(self) -> None:
        """Else the next tests would show nothing."""
        assert most(ask()) == 42

    @pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
    def test_nothing_is_loaded_from_a_folder_that_they_can_write_to(self, mode: int, planted: Path) -> None:
        planted.parent.chmod(mode)
        found = ask()
        assert most(found) != 42
        assert found.unkept == f"other users can write to {planted.parent}; run chmod go-w {planted.parent}"
        assert files(planted.parent) == [planted]
        planted.parent.chmod(0o755)
        assert ask().unkept is None

    @pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
    def test_a_file_that_they_can_write_to_is_replaced(self, mode: int, planted: Path) -> None:
        planted.chmod(mode)
        found = ask()
        assert most(found) != 42
        assert found.unkept is None
        assert planted.stat().st_mode & 0o777 == 0o755

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_nothing_of_theirs_is_loaded(self, planted: Path) -> None:
        os.chown(planted.parent, 12345, -1)
        found = ask()
        assert most(found) != 42
        assert found.unkept is not None
        assert f"{planted.parent} belongs to another user; set ELMOKIT_CACHE" in found.unkept
        os.chown(planted.parent, 0, -1)
        os.chown(planted, 12345, -1)
        assert most(ask()) != 42
        assert planted.stat().st_uid == 0

    def test_what_is_made_is_safe_whatever_the_umask(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "open"))
        before = os.umask(0)
        try:
            assert ask().unkept is None
        finally:
            os.umask(before)
        [path] = files(tmp_path / "open")
        assert [p.stat().st_mode & 0o777 for p in (path, path.parent)] == [0o755, 0o755]
        made = path.stat().st_mtime_ns
        assert ask().unkept is None
        assert path.stat().st_mtime_ns == made


def most(found: Compiled) -> int:
    assert found.library is not None
    return int(found.library.elmokit_most())


@needs_library
def test_processes_share_it_and_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that make it at the same time, their forks, and this one, which makes it no more."""
    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of forks beside threads, which newer Pythons give
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) for _ in range(2)]
    try:
        printed = [process.communicate(timeout=120)[0].split() for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0]
    assert [len(numbers) for numbers in printed] == [5, 5]
    assert len({number for numbers in printed for number in numbers}) == 1
    [path] = files(tmp_path / "cache")
    made = path.stat().st_mtime_ns
    assert ask().library is not None
    assert [(path, made)] == [(p, p.stat().st_mtime_ns) for p in files(tmp_path / "cache")]
