"""Windows against sentences walked one word at a time."""

import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from elmokit.pretrain import windows as module
from elmokit.pretrain.windows import BOS_ID, EOS_ID, UNK_ID, Position, Window, WindowPlan, shuffled, windows

V = 12  # words from this number on are outside the vocabulary


class Listed:
    """Sentences in memory."""

    def __init__(self, sentences: list[list[int]]) -> None:
        self.sentences = sentences
        self.n_tokens = sum(map(len, sentences))

    def __len__(self) -> int:
        return len(self.sentences)

    def gather(self, which: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        chosen = [self.sentences[k] for k in which.tolist()]
        flat = [word for sentence in chosen for word in sentence]
        return np.array(flat, dtype=np.uint32), np.array([len(s) for s in chosen], dtype=np.int64)


class Walk(NamedTuple):
    """What one direction reads and predicts, and where a sentence starts, step by step."""

    inputs: list[int]
    targets: list[int]
    starts: list[bool]


def walk(sentences: list[list[int]], direction: str) -> Walk:
    """Forward `<S> w_1 .. w_n </S>` without `<S>` as a target; backward `</S> w_n .. w_1 <S>` without `</S>`."""
    result = Walk([], [], [])
    for words in sentences:
        path = [BOS_ID, *words, EOS_ID] if direction == "forward" else [EOS_ID, *reversed(words), BOS_ID]
        result.inputs.extend(path[:-1])
        result.targets.extend(word if word < V else UNK_ID for word in path[1:])
        result.starts.extend([True] + [False] * len(words))
    return result


def epoch_of(sentences: Listed, plan: WindowPlan, epoch: int = 0) -> list[Window]:
    """All windows of an epoch."""
    found = []
    for (window,) in windows(sentences, plan, start=Position(epoch), parts=[slice(None)]):
        found.append(window)
        if window.after.epoch > epoch:
            return found
    raise AssertionError("windows ended")


def reading(window: Window) -> NDArray[np.int64]:
    return window.types[window.which]  # (R, T * B)


corpora = st.lists(st.lists(st.integers(3, 30), min_size=1, max_size=9), min_size=1, max_size=25)
orders = st.sampled_from(["shuffled", "corpus"])


def ordered(sentences: list[list[int]], plan: WindowPlan, epoch: int) -> list[list[int]]:
    if plan.order == "corpus":
        return sentences
    places = shuffled(np.arange(len(sentences)), len(sentences), seed=(plan.seed, epoch))
    return [sentences[k] for k in places.tolist()]


@given(corpora, orders, st.integers(0, 3))
def test_one_row_one_step_walks_through_every_sentence(sentences: list[list[int]], order: Any, epoch: int) -> None:
    plan = WindowPlan(rows=1, steps=1, vocabulary=V, order=order)
    found = epoch_of(Listed(sentences), plan, epoch)
    for r, direction in enumerate(("forward", "backward")):
        want = walk(ordered(sentences, plan, epoch), direction)
        inputs, targets = (
            [int(part[r, 0]) for part in parts] for parts in zip(*((reading(w), w.targets) for w in found), strict=True)
        )
        assert inputs == want.inputs
        assert targets == want.targets
        assert [w.keep[0] == 0 for w in found] == want.starts
        barred = {"forward": BOS_ID, "backward": EOS_ID}[direction]
        assert barred not in targets
        assert UNK_ID not in inputs  # words outside the vocabulary are read as they are
    assert len(found) == sum(len(s) + 1 for s in sentences)  # n + 1 predictions each way


@given(corpora, st.integers(1, 4), st.integers(1, 5), orders)
def test_rows_and_steps_only_cut_the_same_walk(sentences: list[list[int]], rows: int, steps: int, order: Any) -> None:
    positions = sum(len(s) + 1 for s in sentences)
    length = positions // rows
    if length < steps:
        return
    plan = WindowPlan(rows=rows, steps=steps, vocabulary=V, order=order)
    found = epoch_of(Listed(sentences), plan)
    assert len(found) == length // steps
    assert [w.after for w in found] == [*(Position(0, 0, k + 1) for k in range(len(found) - 1)), Position(1)]
    for r, direction in enumerate(("forward", "backward")):
        want = walk(ordered(sentences, plan, 0), direction)
        for k, window in enumerate(found):
            assert window.types.tolist() == sorted(set(window.types.tolist()))
            for t, b in itertools.product(range(steps), range(rows)):
                at = b * length + k * steps + t
                assert reading(window)[r, t * rows + b] == want.inputs[at]
                assert window.targets[r, t * rows + b] == want.targets[at]
                fresh = want.starts[at] or (k == 0 and t == 0)
                assert window.keep[t * rows + b] == (0 if fresh else 1)


def corpus(n: int = 60, *, seed: int = 0) -> Listed:
    rng = np.random.default_rng(seed)
    return Listed([rng.integers(3, 40, size=rng.integers(1, 12)).tolist() for _ in range(n)])


@pytest.mark.parametrize(("state", "low", "high"), [("carry", 0.0, 0.0), ("random", 0.3, 0.7), ("reset", 1.0, 1.0)])
def test_state_starts_anew_as_often_as_asked(state: Any, low: float, high: float) -> None:
    text = corpus(400)
    plan = WindowPlan(rows=1, steps=1, vocabulary=V, order="corpus", state=state)
    found = epoch_of(text, plan)
    starts = walk(text.sentences, "forward").starts
    fresh = [w.keep[0] == 0 for w in found]
    assert fresh[0]  # a segment's first step always
    assert not any(f and not s for f, s in zip(fresh, starts, strict=True))  # and never inside a sentence
    share = sum(fresh[1:]) / sum(starts[1:])
    assert low <= share <= high
    assert fresh == [w.keep[0] == 0 for w in epoch_of(text, plan)]
    if state == "random":
        assert fresh != [w.keep[0] == 0 for w in epoch_of(text, replace(plan, seed=2))]


def same(a: Window, b: Window) -> bool:
    return a.after == b.after and all(np.array_equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))


@pytest.mark.parametrize("state", ["reset", "random"])
def test_a_run_can_go_on_from_any_position(state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT", 100)
    text = corpus()
    plan = WindowPlan(rows=2, steps=3, vocabulary=V, state=state)
    assert len(module.segment_bounds(text, plan)) > 2
    whole = [parts[0] for parts in itertools.islice(windows(text, plan, start=Position(), parts=[slice(None)]), 150)]
    assert whole[-1].after.epoch == 2
    assert len({w.after for w in whole}) == len(whole)
    places = [Position(), *(w.after for w in whole)]
    for _, some in itertools.groupby(places, key=lambda place: place[:2]):  # no window of a segment is passed over
        numbers = [place.window for place in some]
        assert numbers == list(range(len(numbers)))
    for k in range(0, len(whole) - 4, 7):
        going_on = windows(text, plan, start=whole[k].after, parts=[slice(None)])
        for n, (window,) in enumerate(itertools.islice(going_on, 4)):
            assert same(window, whole[k + 1 + n])


def test_segments_cover_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT", 100)
    text = corpus(200)
    bounds = module.segment_bounds(text, WindowPlan(rows=2, steps=3, vocabulary=V))
    assert [k for a, b in bounds for k in range(a, b)] == list(range(200))
    assert max(b - a for a, b in bounds) - min(b - a for a, b in bounds) <= 1


def test_parts_are_slices_of_the_same_batch() -> None:
    text, plan = corpus(), WindowPlan(rows=6, steps=4, vocabulary=V)
    thirds = [slice(0, 2), slice(2, 4), slice(4, 6)]
    whole = windows(text, plan, start=Position(), parts=[slice(None)])
    parts = windows(text, plan, start=Position(), parts=thirds)
    for (all_rows,), some in itertools.islice(zip(whole, parts, strict=True), 8):
        joined = np.concatenate([reading(p).reshape(2, 4, 2) for p in some], axis=2)
        assert np.array_equal(joined, reading(all_rows).reshape(2, 4, 6))
        assert np.array_equal(
            np.concatenate([p.targets.reshape(2, 4, 2) for p in some], axis=2), all_rows.targets.reshape(2, 4, 6)
        )
        assert np.array_equal(np.concatenate([p.keep.reshape(4, 2) for p in some], axis=1), all_rows.keep.reshape(4, 6))
        assert all(p.after == all_rows.after for p in some)


def test_one_direction_alone_is_that_of_both() -> None:
    text, plan = corpus(), WindowPlan(rows=3, steps=4, vocabulary=V)
    both = epoch_of(text, plan)
    for r, direction in enumerate(("forward", "backward")):
        alone = epoch_of(text, replace(plan, directions=(direction,)))
        for a, b in zip(alone, both, strict=True):
            assert np.array_equal(reading(a)[0], reading(b)[r])
            assert np.array_equal(a.targets[0], b.targets[r])


def test_epochs_are_shuffled_anew() -> None:
    text, plan = corpus(), WindowPlan(rows=1, steps=1, vocabulary=V)
    first, second = ([int(w.targets[0, 0]) for w in epoch_of(text, plan, epoch)] for epoch in (0, 1))
    assert first != second
    assert sorted(first) == sorted(second)
