"""What several tests of kernels share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def threads() -> Iterator[None]:
    """For a test that changes their number."""
    number = torch.get_num_threads()
    yield
    torch.set_num_threads(number)
