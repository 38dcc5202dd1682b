"""Windows over long texts: every piece once, from the window that shows it the most context."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.encoders.transformer._pieces import WindowPlan, cut_windows
from elmokit.errors import InputError

counts = st.lists(st.integers(0, 12), max_size=60)
plans = st.integers(1, 20).flatmap(lambda room: st.builds(WindowPlan, st.just(room), st.integers(0, room - 1)))


@given(counts, plans, st.booleans())
def test_every_piece_is_taken_once_and_from_within_its_window(
    words: list[int], plan: WindowPlan, left_only: bool
) -> None:
    windows = cut_windows(words, plan, left_only=left_only)
    taken = [piece for w in windows for piece in range(w.first, w.last)]
    assert taken == list(range(sum(words)))
    for window in windows:
        assert 0 < window.end - window.begin <= plan.room
        assert window.begin <= window.first <= window.last <= window.end
    if sum(words) <= plan.room:
        assert len(windows) == bool(sum(words))


@given(counts, plans)
def test_neighbours_share_at_most_the_overlap_but_for_the_last(words: list[int], plan: WindowPlan) -> None:
    windows = cut_windows(words, plan, left_only=False)
    for a, b in pairwise(windows[:-1]):
        assert a.begin < b.begin <= a.end < b.end
        assert a.end - b.begin <= plan.overlap


@given(counts, plans)
def test_words_are_cut_only_where_they_must_be(words: list[int], plan: WindowPlan) -> None:
    between, at = {0}, 0
    for count in words:
        if count > plan.room - plan.overlap:
            between |= set(range(at, at + count))  # too long to stay whole everywhere
        at += count
        between.add(at)
    for window in cut_windows(words, plan, left_only=False):
        assert {window.begin, window.end, window.first, window.last} <= between


@given(st.integers(1, 60), plans)
def test_no_other_window_shows_a_piece_more(pieces: int, plan: WindowPlan) -> None:
    """One piece per word, so that every edge is allowed and the best is known."""
    total = pieces

    def both(piece: int, begin: int, end: int) -> float:
        left = float("inf") if begin == 0 else piece - begin
        right = float("inf") if end == total else end - 1 - piece
        return min(left, right)

    for left_only in (False, True):
        windows = cut_windows([1] * pieces, plan, left_only=left_only)
        for window in windows:
            for piece in range(window.first, window.last):
                holding = [w for w in windows if w.begin <= piece < w.end]
                if left_only:
                    assert window.begin == min(w.begin for w in holding)
                else:
                    best = max(both(piece, w.begin, w.end) for w in holding)
                    assert both(piece, window.begin, window.end) == best


def test_plans_that_cannot_be() -> None:
    with pytest.raises(InputError, match="room for 0 pieces"):
        WindowPlan(0, 0)
    with pytest.raises(InputError, match="the overlap may be 0 to 9"):
        WindowPlan(10, 10)
