"""Products with a fixed matrix on a CPU: near the exact ones in every mode, and no row minds its neighbours."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.kernels.cpu import int8
from elmokit.kernels.cpu.features import CpuFeatures, cpu_features
from elmokit.kernels.cpu.int8 import FbgemmMultiply, Int8Matrix, Int8Product, OneDnnMultiply, quantise
from elmokit.kernels.cpu.products import Bfloat16Product, FloatProduct, Product, cpu_product

HERE = cpu_features()
LIBRARIES = [
    pytest.param(OneDnnMultiply, marks=pytest.mark.skipif(not HERE.onednn, reason="torch has no oneDNN here")),
    pytest.param(FbgemmMultiply, marks=pytest.mark.skipif(not FbgemmMultiply.present(), reason="no FBGEMM in torch")),
]
MODES = {"float32": (torch.float32, 1e-5), "bfloat16": (torch.bfloat16, 0.02), "int8": (torch.int8, 0.04)}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("rows", [1, 2, 7, 40, 67, 80])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("packs", [False, True])
def test_each_way_to_multiply(mode: str, rows: int, packs: bool) -> None:
    dtype, allowed = MODES[mode]
    matrices, x, bias = draw(2, 24, 40), draw(2, rows, 40, seed=1), draw(2, 1, 24, seed=2)
    product = cpu_product(list(matrices), dtype, packs=packs)
    exact = x.double() @ matrices.double().mT
    assert relative(product.affine(x, bias), exact + bias) < allowed
    onto = draw(2, rows, 24, seed=3)
    sums = onto.clone()
    product.add(x, sums)
    assert relative(sums, exact + onto) < allowed
    u = torch.tanh(x)
    out = torch.empty(2, rows, 24)
    product.project(u, out)
    assert relative(out, u.double() @ matrices.double().mT) < allowed


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [1, 3, 33, 70])
@pytest.mark.parametrize("signed", [True, False])
def test_both_libraries_sum_integers_exactly(library: type[OneDnnMultiply], rows: int, signed: bool) -> None:
    most = 255 if HERE.vnni else 127
    steps, shift = (most // 2, most // 2 + 1) if signed else (most, 0)
    source = torch.Generator().manual_seed(4)
    q = torch.randint(-steps if signed else 0, steps + 1, (rows, 64), generator=source).float()
    q[0] = steps  # the largest sums there are must not saturate
    values = torch.randint(-127, 128, (16, 64), generator=source, dtype=torch.int8)
    values[0] = 127
    scale = torch.rand(16, generator=source) + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        multiply = library([Int8Matrix(values, scale)], steps=steps, shift=shift)
        found = multiply(0, multiply.whole(q[None], torch.ones(1, rows, 1))[0])[:rows]
    exact = q.double() @ values.double().t() * scale / steps
    torch.testing.assert_close(found, exact.float(), rtol=1e-5, atol=0.001)


@given(st.integers(1, 9), st.integers(0, 8), st.floats(-6, 6), st.integers(0, 99))
def test_a_neighbour_in_the_batch_changes_nothing(rows: int, at: int, size: float, seed: int) -> None:
    """Neighbours a million times as large, or as small: the row's own numbers are the same, bit for bit."""
    product = int8_product()
    x = draw(1, 1, 40, seed=seed)
    crowd = draw(1, rows, 40, seed=seed + 1) * 10**size
    at = min(at, rows)
    batch = torch.cat([crowd[:, :at], x, crowd[:, at:]], dim=1)
    bias = draw(1, 1, 24, seed=2)
    assert torch.equal(product.affine(batch, bias)[0, at], product.affine(x, bias)[0, 0])
    alone, together = torch.empty(1, 1, 24), torch.empty(1, rows + 1, 24)
    product.project(torch.tanh(x), alone)
    product.project(torch.tanh(batch), together)
    assert torch.equal(together[0, at], alone[0, 0])


def int8_product() -> Product:
    return cpu_product([draw(24, 40)], torch.int8)


def test_a_row_of_zeros_stays_zero() -> None:
    bias = draw(1, 1, 24, seed=2)
    assert torch.equal(int8_product().affine(torch.zeros(1, 1, 40), bias), bias)


def test_a_projection_keeps_what_one_int8_would_lose() -> None:
    """Spiky rows: one number near 1, the others small, as gated cells are."""
    matrix = draw(24, 400)
    held = [Int8Matrix(*quantise(matrix))]
    u = 0.004 * draw(1, 5, 400, seed=1)
    u[..., 7] = 0.99
    out, zeros = torch.empty(1, 5, 24), torch.zeros(1, 1, 24)
    product = Int8Product(held)
    exact = u.double() @ matrix.double().t()
    product.project(u, out)
    assert relative(out, exact) < 0.01
    assert relative(product.affine(u, zeros), exact) > 0.02, "else one int8 would do"
    spiky = Int8Product(held, features=CpuFeatures(onednn=HERE.onednn), rows="spiky")
    assert relative(spiky.affine(10 * u, zeros), 10 * exact) < 0.01


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("steps", [63, 127])
def test_a_number_becomes_two_whole_ones(library: type[OneDnnMultiply], steps: int) -> None:
    """With 127 steps as where there is VNNI; only the multiplying needs that."""
    multiply = library([Int8Matrix(torch.ones(1, 7, dtype=torch.int8), torch.ones(1))], steps=steps, shift=steps + 1)
    u = torch.tensor([1.0, -1.0, 0.0, 0.5 / steps, -0.5 / steps, 0.123, -0.987])
    near, rest = multiply.pair(u[None, None])[0].double().round()
    if library is OneDnnMultiply:
        near, rest = near - multiply.shift, rest - multiply.shift
    assert float(near.abs().max()) <= steps
    assert float(rest.abs().max()) <= steps + 1
    torch.testing.assert_close((near + rest / multiply.finer) / steps, u.double(), rtol=0, atol=0.6 / steps / steps / 2)


def test_positive_rows_use_the_sign_too() -> None:
    matrix, x = draw(24, 400), torch.relu(draw(1, 5, 400, seed=1))
    exact, zeros = x.double() @ matrix.double().t(), torch.zeros(1, 1, 24)
    held = [Int8Matrix(*quantise(matrix))]
    signed, positive = (Int8Product(held, rows=rows).affine(x, zeros) for rows in ("even", "positive"))
    assert relative(positive, exact) < 0.8 * relative(signed, exact)


@pytest.mark.parametrize(
    ("has", "mode"),
    [
        (CpuFeatures(onednn=True), torch.int8),
        (CpuFeatures(bfloat16=True, onednn=True), torch.int8),
        (CpuFeatures(vnni=True, onednn=True), torch.int8),
        (CpuFeatures(vnni=True, bfloat16=True, onednn=True), torch.int8),
        (CpuFeatures(vnni=True, bfloat16=True), torch.float32),
    ],
)
def test_the_fastest_mode_is_what_the_cpu_has(has: CpuFeatures, mode: torch.dtype) -> None:
    assert has.fastest == mode


def test_the_cpu_is_asked_for_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for names, expected in (
        ((), (False, False)),
        (("avx2",), (False, False)),
        (("avx512_vnni",), (True, False)),
        (("avx_vnni",), (True, False)),
        (("amx_int8", "amx_bf16"), (True, True)),
        (("avx512_bf16",), (False, True)),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda names=names: dict.fromkeys(names, True))
        found = cpu_features.__wrapped__()
        assert (found.vnni, found.bfloat16) == expected


class TestWhatRuns:
    def test_bfloat16_multiplies_in_float32_where_the_cpu_cannot(self) -> None:
        product = cpu_product([draw(8, 8)], torch.bfloat16, features=CpuFeatures(onednn=True))
        assert isinstance(product, FloatProduct)
        assert product.matrices[0].dtype == torch.float32
        assert torch.equal(product.matrices[0], draw(8, 8).bfloat16().float())

    def test_bfloat16_multiplies_in_bfloat16_where_the_cpu_can(self) -> None:
        product = cpu_product([draw(8, 40)], torch.bfloat16, features=CpuFeatures(bfloat16=True, onednn=True))
        assert isinstance(product, Bfloat16Product)
        x = draw(1, 5, 40, seed=1)
        assert relative(product.affine(x, torch.zeros(1, 1, 8)), x.double() @ draw(8, 40).double().t()) < 0.02

    def test_int8_without_a_library_keeps_its_weights(self) -> None:
        product = cpu_product([draw(8, 8)], torch.int8, features=CpuFeatures())
        assert isinstance(product, FloatProduct)
        assert torch.equal(product.matrices[0], int8.dequantise(*quantise(draw(8, 8))))

    @pytest.mark.skipif(not HERE.onednn, reason="torch has no oneDNN here")
    def test_int8_lasts_when_the_quantised_types_are_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(torch, "_make_per_channel_quantized_tensor")
        product = cpu_product([draw(24, 40)], torch.int8, features=CpuFeatures(onednn=True))
        assert isinstance(product, Int8Product)
        assert isinstance(product.multiply, OneDnnMultiply)
        x = draw(1, 3, 40, seed=1)
        assert relative(product.affine(x, torch.zeros(1, 1, 24)), x.double() @ draw(24, 40).double().t()) < 0.04
