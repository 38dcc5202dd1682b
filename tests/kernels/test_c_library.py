"""The C library: built whole or not at all, chosen by the CPU, refused where it does not fit, the same everywhere."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.errors import ElmokitWarning
from elmokit.native import build, library
from elmokit.native.library import Compiled, c_library

needs_library = pytest.mark.skipif(c_library() is None, reason="no library was built, no AVX2, or ELMOKIT_NATIVE=0")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

QUICK = {"avx2": f"{build.AVX2} -O0"}  # a compiler that does not take its time

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


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wishes of whoever runs the tests."""
    for name in ("CC", "ELMOKIT_NATIVE", "ELMOKIT_LIBRARY", "ELMOKIT_VARIANT"):
        monkeypatch.delenv(name, raising=False)


def ask() -> Compiled:
    """Each time anew."""
    return library.compiled.__wrapped__()


class TestBuilding:
    @pytest.mark.parametrize(
        ("compiler", "told"),
        [
            ("nothing-there", "no C compiler: nothing-there is not there"),
            ("nothing-there --really", "no C compiler: nothing-there is not there"),
            ("'no end", "CC is no command line"),
            ("false", "false does not say what it compiles for"),
            ("true", "there is no C for an unknown machine"),
        ],
    )
    def test_without_a_compiler_that_works(
        self, compiler: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CC", compiler)
        with pytest.raises(build.BuildError, match=told):
            build.build(tmp_path / "made.so")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("script", "told"), [("exec sleep 20", "timed out"), ("exit 3", "it ended with 3"), ("exit 0", "ended with 0")]
    )
    def test_with_a_compiler_that_never_ends_or_makes_nothing(
        self, script: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = tmp_path / "fake"
        fake.write_text(f"#!/bin/sh\ncase $* in *-dumpmachine*) echo x86_64-fake-linux; exit;; esac\n{script}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("CC", str(fake))
        monkeypatch.setattr(build, "PATIENCE", 1.0)
        with pytest.raises(build.BuildError, match=told):
            build.build(tmp_path / "out" / "made.so")
        assert list((tmp_path / "out").iterdir()) == []

    def test_for_other_machines(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "_machine", lambda command: "riscv64")
        monkeypatch.setenv("CC", "true")
        with pytest.raises(build.BuildError, match="there is no C for riscv64"):
            build.build(tmp_path / "made.so")

    @needs_compiler
    @needs_library
    def test_a_variant_that_the_compiler_does_not_know_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = tmp_path / "made.so"
        before = os.umask(0o077)
        try:
            assert build.build(made, variants={**QUICK, "avx512": "-mno-such-instructions"}) == ["avx2"]
        finally:
            os.umask(before)
        assert made.stat().st_mode & 0o777 == 0o755
        assert build.up_to_date(made)
        monkeypatch.setenv("ELMOKIT_LIBRARY", str(made))
        found = ask().library
        assert found is not None
        assert (found.variant, found.elmokit_lanes(), found.elmokit_most()) == ("avx2", 8, 127)

    @needs_compiler
    def test_as_a_program(self, tmp_path: Path) -> None:
        """It needs no package, not even elmokit itself."""
        made = tmp_path / "made.so"
        command = [sys.executable, "-I", "-S", build.__file__, "--if-stale", "--output", str(made)]
        command += [f"--variant={name}={flags}" for name, flags in QUICK.items()]
        first = subprocess.run(command, capture_output=True, text=True, check=True)
        assert first.stdout == f"built {made} with avx2\n"
        again = subprocess.run(command, capture_output=True, text=True, check=True)
        assert again.stdout == ""
        failed = subprocess.run(
            command[:-1], env={**os.environ, "CC": "nothing-there", "PATH": ""}, capture_output=True, check=False
        )
        assert failed.returncode == 0  # there is one already
        made.unlink()
        failed = subprocess.run(
            command, env={**os.environ, "CC": "nothing-there"}, capture_output=True, text=True, check=False
        )
        assert (failed.returncode, failed.stderr) == (
            1,
            "not built: no C compiler: nothing-there is not there (CC names another)\n",
        )


class TestThereIsNone:
    def test_where_it_is_not_wanted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_NATIVE", "0")
        assert ask() == Compiled(missing="switched off by ELMOKIT_NATIVE=0")

    def test_where_none_was_built(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(build, "NAME", "not-there.so")
        told = ask().missing
        assert told == f"the library was not built; with a C compiler, run python {build.__file__}"
        monkeypatch.setenv("ELMOKIT_LIBRARY", str(tmp_path / "neither"))
        assert "which is no file" in str(ask().missing)

    @pytest.mark.parametrize("content", [b"", b"no library", b"\x7fELF" + bytes(100)])
    def test_where_it_is_damaged(self, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "damaged.so").write_bytes(content)
        monkeypatch.setenv("ELMOKIT_LIBRARY", str(tmp_path / "damaged.so"))
        with pytest.warns(ElmokitWarning, match=r"cannot be loaded .*; run python .*build\.py"):
            assert ask().library is None

    @needs_compiler
    def test_where_it_is_another_library(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "other.c").write_text("int other(void) { return 42; }")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "o.so", tmp_path / "other.c"], check=True)
        monkeypatch.setenv("ELMOKIT_LIBRARY", str(tmp_path / "o.so"))
        with pytest.warns(ElmokitWarning, match="cannot be loaded"):
            assert ask().library is None

    @needs_library
    def test_where_it_is_of_other_sources(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A changed C file, and no build since."""
        assert build.up_to_date()
        monkeypatch.setattr(build, "sources_digest", lambda: "of tomorrow")
        assert not build.up_to_date()
        with pytest.warns(ElmokitWarning, match=r"made of other C sources than these; run python .*build\.py"):
            assert ask().library is None


@needs_library
class TestVariants:
    def test_the_best_one_is_chosen_or_the_one_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        usual = ask().library
        assert usual is not None
        assert (usual.elmokit_most() == 255) == usual.variant.endswith(("vnni", "bf16", "amx", "i8mm"))
        plain, lanes = ("neon", 4) if usual.elmokit_lanes() == 4 else ("avx2", 8)  # what all of its kind run
        monkeypatch.setenv("ELMOKIT_VARIANT", plain)
        found = ask().library
        assert found is not None
        assert (found.variant, found.elmokit_lanes()) == (plain, lanes)

    def test_one_that_does_not_run_here_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ELMOKIT_VARIANT", "altivec")
        with pytest.warns(ElmokitWarning, match="ELMOKIT_VARIANT is 'altivec'; this CPU runs "):
            assert ask().library is None


@needs_library
def test_processes_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at the same time, and their forks."""
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
