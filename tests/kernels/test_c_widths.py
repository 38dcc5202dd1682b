"""The C's code for each width of vectors passes its tests on this machine: narrow as AVX2 has it, wide as AVX-512 does,
with bfloat16 and with tiles.

Instructions that are not here are put together from those that are (avx512.h). Each variant is built in the place of
the one for AVX2, so that it is chosen on any machine.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.kernels.cpu.c import c_library
from elmokit.native import build

HERE = Path(__file__).parent
TESTS = [str(HERE / f"test_c_{what}.py") for what in ("lstm", "tokens", "floats")]
WIDE = f"{build.AVX2} -w -include {HERE / 'avx512.h'}"
VARIANTS = {  # what the compiler is told; lanes of a vector, the largest byte of a row, how bfloat16 is multiplied
    "AVX2": (build.AVX2, "8 127 0"),
    "AVX2, rows in groups": (f"{build.AVX2} -DGROUPED=64", "8 127 0"),
    "AVX-512": (WIDE, "16 127 0"),
    "AVX-512 with VNNI": (f"-DVNNI {WIDE}", "16 255 0"),
    "AVX-512 with VNNI and BF16": (f"-DVNNI -DHALVED {WIDE}", "16 255 1"),
    "AVX-512, rows in groups": (f"{WIDE} -DGROUPED=64", "16 127 0"),
    "AMX": (f"-DVNNI -DTILED {WIDE}", "16 255 2"),
}
ASK = """
from elmokit.kernels.cpu.c import c_library
n = c_library()
print(n.elmokit_lanes(), n.elmokit_most(), n.elmokit_halves())
"""

LAYERS = """
import zlib
import numpy as np
from elmokit.native.library import c_library
from elmokit.native.lstm import CLstm
from elmokit.shape import LstmRules

drawn = np.random.default_rng(0).standard_normal
for D, H, P, B in ((64, 24, 48, 1), (512, 20, 512, 50), (40, 1100, 33, 13), (1100, 9, 20, 97), (2100, 17, 17, 19)):
    matrices = [[drawn(shape, np.float32) * np.float32(shape[1] ** -0.5)] for shape in ((4 * H, D), (4 * H, P), (P, H))]
    layer = CLstm(c_library(), *matrices[:2], np.zeros((1, 4 * H), np.float32), matrices[2], LstmRules(3.0, 3.0, 1.0))
    steps = B, B, B // 2
    state = drawn((1, B, P), np.float32), drawn((1, B, H), np.float32)
    print([zlib.crc32(part.tobytes()) for part in layer(drawn((1, sum(steps), D), np.float32), *state, steps)])
"""
needs_gcc = pytest.mark.skipif(c_library() is None or shutil.which("gcc") is None, reason="needs gcc and AVX2")


@needs_gcc
def test_rows_in_groups_have_the_same_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: a row's sums do not depend on how many rows stay in the nearest cache."""
    monkeypatch.setenv("CC", "gcc")
    told = set()
    for grouped in (1, 64, 3072):
        made = tmp_path / f"{grouped}.so"
        build.build(made, variants={"avx2": f"{build.AVX2} -O1 -DGROUPED={grouped}"})
        around = {**os.environ, "ELMOKIT_LIBRARY": str(made), "ELMOKIT_VARIANT": "avx2"}
        asked = subprocess.run([sys.executable, "-c", LAYERS], env=around, capture_output=True, text=True, check=False)
        assert asked.stdout.count("\n") == 5, asked.stderr
        told.add(asked.stdout)
    assert len(told) == 1


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("name", VARIANTS)
def test_width(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags, expected = VARIANTS[name]
    monkeypatch.setenv("CC", "gcc")
    made = tmp_path / "made.so"
    assert build.build(made, variants={"avx2": flags}) == ["avx2"]
    around = {**os.environ, "ELMOKIT_LIBRARY": str(made), "ELMOKIT_VARIANT": "avx2"}
    asked = subprocess.run([sys.executable, "-c", ASK], env=around, capture_output=True, text=True, check=False)
    assert asked.stdout.strip() == expected, asked.stderr
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    run = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:]
    assert "skipped" not in run.stdout.splitlines()[-1], run.stdout[-3000:]
