"""What all tests share: where the evaluation data lies, and quiet, repeatable torch."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The models of the tests are so small that handing work to a second thread takes longer than doing it; started
# processes inherit it, and sums keep their order. Set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARED = Path(__file__).resolve().parents[2] / "shared"

settings.register_profile("elmokit", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("elmokit")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with published weights and evaluation data; it lies beside the project and is never part of it."""
    if not SHARED.is_dir():
        pytest.skip(f"no evaluation data at {SHARED}")
    return SHARED
