import numpy as np
import pytest

from elmokit.errors import ConfigError
from elmokit.pretrain.corpus._heldout import HeldOut, plan_heldout


def chosen(held: HeldOut, paragraphs: int, tokens: int = 10, step: int | None = None) -> np.ndarray:
    step = step or paragraphs
    lengths = np.full(step, tokens, dtype=np.uint32)
    return np.concatenate([held.choose(np.arange(k, k + step), lengths) for k in range(0, paragraphs, step)])


def test_share_spread_and_groups() -> None:
    mask = chosen(HeldOut(period=50, group=4, tokens=10**9), 100_000)
    assert mask.mean() == pytest.approx(0.02)
    starts = np.flatnonzero(mask)[::4]
    assert np.all(starts % 4 == 0)
    assert np.all(mask.reshape(-1, 200).sum(axis=1) == 4)  # one group in every window, so no stretch goes without
    assert len(np.unique(starts % 200)) > 25  # at places that vary


def test_blocks_do_not_matter() -> None:
    whole = chosen(HeldOut(period=20, group=3, tokens=500), 5000)
    parts = chosen(HeldOut(period=20, group=3, tokens=500), 5000, step=100)
    np.testing.assert_array_equal(whole, parts)
    assert whole.sum() * 10 == 500


def test_two_paragraphs_are_enough() -> None:
    assert chosen(HeldOut(period=100, group=1, tokens=1000), 2).tolist() == [False, True]
    assert not chosen(HeldOut(period=0, group=1, tokens=1000), 500).any()


def test_plans() -> None:
    assert plan_heldout(None, tokens=200_000, estimated=None) == HeldOut(100, 1, 200_000)
    assert plan_heldout(None, tokens=200_000, estimated=50_000).period == 20
    assert plan_heldout(None, tokens=200_000, estimated=10_000_000) == HeldOut(100, 32, 200_000)
    assert plan_heldout(0.02, tokens=200_000, estimated=1_600_000_000).period == 10_000
    assert plan_heldout(0.5, tokens=200_000, estimated=100).period == 2
    assert plan_heldout(0.0, tokens=200_000, estimated=100).period == 0
    with pytest.raises(ConfigError, match=r"heldout = 1\.5"):
        plan_heldout(1.5, tokens=1, estimated=None)
