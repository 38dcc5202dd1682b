"""Tiny models train fastest on one thread, and bit for bit alike."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
