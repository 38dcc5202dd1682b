"""Tiny models train fastest on one thread, and bit for bit alike. Processes end with the test that started them."""

from collections.abc import Iterator

import pytest
import small_runs as runs
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    yield
    runs.end_all()
