"""Bootstrap intervals against what theory says of them."""

import numpy as np
import pytest

from elmokit.analysis.intervals import mean_interval, score_interval


def test_a_share_has_the_normal_interval() -> None:
    right = np.random.default_rng(1).random(2000) < 0.8
    found = mean_interval(right)
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / len(right))
    assert found.low == pytest.approx(share - half, abs=0.004)
    assert found.high == pytest.approx(share + half, abs=0.004)
    assert mean_interval(right) == found  # the same data, the same interval


def test_groups_are_drawn_together() -> None:
    """A hundred sentences of twenty words, each all right or all wrong, are a hundred answers, not two thousand."""
    right = np.repeat(np.random.default_rng(2).random(100) < 0.5, 20)
    alone = mean_interval(right)
    together = mean_interval(right, np.repeat(np.arange(100), 20))
    assert together.high - together.low > 3 * (alone.high - alone.low)


def test_any_score_of_resampled_items() -> None:
    values = np.random.default_rng(3).normal(size=500)
    found = score_interval(lambda drawn: float(values[drawn].mean()), len(values))
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert found.low == pytest.approx(values.mean() - half, abs=0.02)
    assert found.high == pytest.approx(values.mean() + half, abs=0.02)


def test_nothing_answered() -> None:
    assert mean_interval(np.array([], dtype=bool)) == (0.0, 0.0)
