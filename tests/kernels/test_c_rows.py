"""Rows of a table by their places, in C and in NumPy."""

import numpy as np
import pytest

from elmokit.native import rows
from elmokit.native.rows import take_or_zero

TABLE = np.random.default_rng(0).standard_normal((50, 7), dtype=np.float32)


@pytest.fixture(params=["C", "NumPy"], autouse=True)
def _by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(rows, "c_library", lambda: None)


@pytest.mark.parametrize("places", [[], [3], [49, 0, 0, -1, 7], [-1, -1], list(range(50)) * 40])
@pytest.mark.parametrize("table", [TABLE, TABLE[:, :3], TABLE[::2], TABLE.astype(np.float16)], ids=str)
def test_rows_and_zeros(places: list[int], table: np.ndarray) -> None:
    wanted = [k % len(table) if k >= 0 else k for k in places]
    found, missing = take_or_zero(table, np.array(wanted, dtype=np.int64))
    expected = [table[k] if k >= 0 else np.zeros(table.shape[1]) for k in wanted]
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float32).reshape(-1, table.shape[1]))
    assert found.dtype == np.float32
    assert missing == sum(k < 0 for k in places)


def test_no_such_row() -> None:
    with pytest.raises(IndexError):
        take_or_zero(TABLE, np.array([1, 50], dtype=np.int64))
