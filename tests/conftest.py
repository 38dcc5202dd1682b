"""What all tests share: where the evaluation data lies, and quiet, repeatable torch."""

from pathlib import Path

import pytest
from hypothesis import settings

SHARED = Path(__file__).resolve().parents[2] / "shared"

settings.register_profile("elmokit", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("elmokit")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with published weights and evaluation data; it lies beside the project and is never part of it."""
    if not SHARED.is_dir():
        pytest.skip(f"no evaluation data at {SHARED}")
    return SHARED
