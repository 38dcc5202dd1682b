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
    "AVX-512": (WIDE, "16 127 0"),
    "AVX-512 with VNNI": (f"-DVNNI {WIDE}", "16 255 0"),
    "AVX-512 with VNNI and BF16": (f"-DVNNI -DHALVED {WIDE}", "16 255 1"),
    "AMX": (f"-DVNNI -DTILED {WIDE}", "16 255 2"),
}
ASK = """
from elmokit.kernels.cpu.c import c_library
n = c_library()
print(n.elmokit_lanes(), n.elmokit_most(), n.elmokit_halves())
"""


@pytest.mark.slow
@pytest.mark.skipif(c_library() is None or shutil.which("gcc") is None, reason="needs gcc on a CPU with AVX2")
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
