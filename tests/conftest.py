"""What all tests share: where the evaluation data lies, and quiet, repeatable torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# The models of the tests are so small that handing work to a second thread takes longer than doing it; started
# processes inherit it, and sums keep their order. Set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A source tree that was never installed, or whose C has changed since: built as whoever works on it would.
BUILD = Path(__file__).resolve().parents[1] / "src/elmokit/native/build.py"
subprocess.run([sys.executable, str(BUILD), "--if-stale"], stdout=subprocess.DEVNULL, check=False)

SHARED = Path(__file__).resolve().parents[2] / "shared"

settings.register_profile("elmokit", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("elmokit")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with published weights and evaluation data; it lies beside the project and is never part of it."""
    if not SHARED.is_dir():
        pytest.skip(f"no evaluation data at {SHARED}")
    return SHARED
