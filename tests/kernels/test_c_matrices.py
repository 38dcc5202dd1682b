"""How matrices become whole numbers for C: sums fit, and little is lost. No compiler is needed here."""

import pytest
import torch
from c_arithmetic import sixteen_bits
from hypothesis import given
from hypothesis import strategies as st

from elmokit.kernels.cpu.c import as_arrays
from elmokit.native.matrices import UNITS, Columns, PackedMatrix


@given(
    K=st.sampled_from([1, 2, 16, 512, 4096, 20000]),
    size=st.sampled_from([1e-20, 1e-3, 1.0, 1e20]),
    power=st.sampled_from([0.0, 1.0, 8.0]),  # 0: all of one size, the largest sums there are
    seed=st.integers(0, 99),
)
def test_sixteen_bits_hold_every_sum(K: int, size: float, power: float, seed: int) -> None:
    drawn = torch.randn(5, K, generator=torch.Generator().manual_seed(seed))
    rows = drawn.sign() * drawn.abs() ** power * size
    whole, scale = sixteen_bits(rows)
    assert int((whole.long().abs().sum(dim=1) * UNITS).max()) < 2**31
    error = (whole.double() * scale.double()[:, None] - rows.double()).abs()  # (5, K)
    assert bool((error <= 0.5001 * scale.double()[:, None]).all())


def test_sixteen_bits_of_a_usual_matrix_lose_less_than_bfloat16() -> None:
    rows = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    whole, scale = sixteen_bits(rows)
    lost = (whole * scale[:, None] - rows).norm(), (rows.bfloat16().float() - rows).norm()
    assert lost[0] < 0.5 * lost[1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_type_of_new_tensors_is_not_ours(dtype: torch.dtype) -> None:
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    expected = sixteen_bits(rows)
    try:
        torch.set_default_dtype(dtype)
        found = sixteen_bits(rows)
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_a_row_of_zeros_stays_one() -> None:
    whole, scale = sixteen_bits(torch.zeros(2, 3))
    assert whole.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert scale.tolist() == [1, 1]


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("gates", [False, True])
def test_sixteen_bits_lie_in_blocks(lanes: int, gates: bool) -> None:
    """Two inputs side by side for each output of a vector, four vectors to a block: its gates, if it has them."""
    matrix = torch.randn(4 * 13, 9, generator=torch.Generator().manual_seed(1)).bfloat16()
    packed = PackedMatrix(as_arrays(matrix), Columns(len(matrix), lanes=lanes, gates=gates), most=127)
    values, scale = map(torch.from_numpy, packed.held)
    whole, single = sixteen_bits(matrix)
    for row in range(len(matrix)):
        vector, place = divmod(row, 13) if gates else divmod(row, lanes)
        block, lane = divmod(place, lanes) if gates else (vector // 4, place)
        for k in range(9):
            assert values[block, k // 2, vector % 4, lane, k % 2] == whole[row, k]
        assert float(scale.view(-1, 4, lanes)[block, vector % 4, lane]) == pytest.approx(float(single[row]) / UNITS)
    assert int((values != 0).sum()) == int((whole != 0).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_laid_out_begins_where_a_line_of_the_cache_does(dtype: torch.dtype) -> None:
    """A vector of 64 bytes would lie across two lines otherwise, each time."""
    for K in range(1, 100, 7):
        matrix = torch.ones(5, K, dtype=dtype)
        packed = PackedMatrix(as_arrays(matrix), Columns(5, lanes=16), most=127)
        assert packed.structure.values % 64 == 0 or (dtype == torch.float32 and K % 16 == 0)  # such a one is not copied
