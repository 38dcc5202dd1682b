"""Sharing rows out to threads, and running side by side, in the recurrence in C."""

import threading
import time
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.native import lstm
from elmokit.native.threads import side_by_side


class TestShares:
    @given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9))
    def test_every_row_is_in_one(self, lengths: list[int], threads: int) -> None:
        steps = tuple(sum(length > t for length in lengths) for t in range(max(lengths)))
        cuts = lstm._shares(steps, threads)
        assert (cuts[0], cuts[-1]) == (0, len(lengths))
        assert all(a < b for a, b in pairwise(cuts))
        assert len(cuts) <= threads + 1

    def test_hold_about_as_many_words(self) -> None:
        assert lstm._shares((16,) * 5, 4) == [0, 4, 8, 12, 16]
        assert lstm._shares((16, *([4] * 9)), 2) == [0, 3, 16]
        assert lstm._shares((16, *([1] * 99)), 4) == [0, 1, 16]
        assert lstm._shares((7,), 4) == [0, 7]
        assert lstm._shares((), 4) == lstm._shares((0, 0), 4) == []


class TestSideBySide:
    def test_lacking_memory_is_told(self, threads: None) -> None:
        torch.set_num_threads(3)
        side_by_side([lambda: 0] * 5)
        for at in range(5):
            with pytest.raises(MemoryError, match="embed fewer at a time"):
                side_by_side([partial(int, k == at) for k in range(5)])

    def test_an_interrupted_run_leaves_none_behind(self, threads: None) -> None:
        """Others may still write into memory that the caller, interrupted, gives back."""
        torch.set_num_threads(2)
        began, ended = threading.Event(), threading.Event()
        caller = threading.current_thread()

        def task() -> int:
            if threading.current_thread() is caller:
                began.wait(5)
                raise KeyboardInterrupt
            began.set()
            time.sleep(0.1)
            ended.set()
            return 0

        with pytest.raises(KeyboardInterrupt):
            side_by_side([task, task])
        assert ended.is_set()
