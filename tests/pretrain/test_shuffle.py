import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.pretrain.windows import shuffled


@given(st.integers(1, 3000), st.integers(0, 2**31), st.integers(0, 50))
def test_it_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    places = shuffled(np.arange(n), n, seed=(seed, epoch))
    assert sorted(places.tolist()) == list(range(n))


@given(st.integers(2, 10**12), st.lists(st.integers(0, 10**12), max_size=30))
def test_a_part_is_computed_without_the_rest(n: int, which: list[int]) -> None:
    chosen = np.array([k % n for k in which], dtype=np.int64)
    places = shuffled(chosen, n, seed=(1, 2))
    assert all(0 <= place < n for place in places.tolist())
    one_by_one = [int(shuffled(chosen[k : k + 1], n, seed=(1, 2))[0]) for k in range(len(chosen))]
    assert places.tolist() == one_by_one


def test_it_is_well_mixed_and_differs_by_seed_and_epoch() -> None:
    n = 5000
    orders = [shuffled(np.arange(n), n, seed=seed) for seed in ((1, 0), (1, 1), (2, 0))]
    for order in orders:
        assert abs(float(np.corrcoef(np.arange(n), order)[0, 1])) < 0.05
        assert int((np.diff(order) == 1).sum()) < 10  # neighbours part
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert int((orders[a] == orders[b]).sum()) < 20
