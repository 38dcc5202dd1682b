"""Products with a fixed matrix on a CPU: near the exact ones in every mode, and no row minds its neighbours."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.kernels import int8
from elmokit.kernels.cpu import CpuFeatures, cpu_features
from elmokit.kernels.int8 import FbgemmMultiply, Int8Matrix, Int8Product, OneDnnMultiply, quantise
from elmokit.kernels.products import Bfloat16Product, FloatProduct, Product, cpu_product

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
    matrix, x, bias = draw(24, 40), draw(rows, 40, seed=1), draw(24, seed=2)
    product = cpu_product(matrix, dtype, packs=packs)
    exact = x.double() @ matrix.double().t()
    assert relative(product.affine(x, bias), exact + bias) < allowed
    onto = draw(rows, 24, seed=3)
    assert relative(product.add(x, onto.clone()), exact + onto) < allowed
    u = torch.tanh(x)
    out = torch.empty(rows, 24)
    product.project(u, out)
    assert relative(out, u.double() @ matrix.double().t()) < allowed


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("rows", [1, 3, 33, 70])
def test_both_libraries_sum_integers_exactly(library: type[OneDnnMultiply], rows: int) -> None:
    steps = 127 if HERE.vnni else 63
    source = torch.Generator().manual_seed(4)
    q = torch.randint(-steps, steps + 1, (rows, 64), generator=source).float()
    q[0] = steps  # the largest sums there are must not saturate
    values = torch.randint(-127, 128, (16, 64), generator=source, dtype=torch.int8)
    values[0] = 127
    scale = torch.rand(16, generator=source) + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = library(Int8Matrix(values, scale), steps=steps)(q)
    torch.testing.assert_close(found, (q.double() @ values.double().t() * scale).float(), rtol=1e-5, atol=0.02)


@given(st.integers(1, 9), st.integers(0, 8), st.floats(-6, 6), st.integers(0, 99))
def test_a_neighbour_in_the_batch_changes_nothing(rows: int, at: int, size: float, seed: int) -> None:
    """Neighbours a million times as large, or as small: the row's own numbers are the same, bit for bit."""
    product = int8_product()
    x = draw(1, 40, seed=seed)
    crowd = draw(rows, 40, seed=seed + 1) * 10**size
    at = min(at, rows)
    batch = torch.cat([crowd[:at], x, crowd[at:]])
    bias = draw(24, seed=2)
    assert torch.equal(product.affine(batch, bias)[at], product.affine(x, bias)[0])
    alone, together = torch.empty(1, 24), torch.empty(rows + 1, 24)
    product.project(torch.tanh(x), alone)
    product.project(torch.tanh(batch), together)
    assert torch.equal(together[at], alone[0])


def int8_product() -> Product:
    return cpu_product(draw(24, 40), torch.int8)


def test_a_row_of_zeros_stays_zero() -> None:
    bias = draw(24, seed=2)
    assert torch.equal(int8_product().affine(torch.zeros(1, 40), bias)[0], bias)


def test_a_projection_keeps_what_one_int8_would_lose() -> None:
    """Spiky rows: one number near 1, the others small, as gated cells are."""
    matrix = draw(24, 400)
    u = 0.004 * draw(5, 400, seed=1)
    u[:, 7] = 0.99
    out = torch.empty(5, 24)
    product = Int8Product(Int8Matrix(*quantise(matrix)))
    exact = u.double() @ matrix.double().t()
    assert relative(product.project(u, out), exact) < 0.01
    assert relative(product.affine(u, torch.zeros(24)), exact) > 0.02, "else one int8 would do"
    spiky = Int8Product(Int8Matrix(*quantise(matrix)), features=CpuFeatures(onednn=HERE.onednn), spiky=True)
    assert relative(spiky.affine(10 * u, torch.zeros(24)), 10 * exact) < 0.01


@pytest.mark.parametrize(
    ("has", "mode"),
    [
        (CpuFeatures(onednn=True), torch.float32),
        (CpuFeatures(bfloat16=True, onednn=True), torch.bfloat16),
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
        product = cpu_product(draw(8, 8), torch.bfloat16, features=CpuFeatures(onednn=True))
        assert isinstance(product, FloatProduct)
        assert product.matrix.dtype == torch.float32
        assert torch.equal(product.matrix, draw(8, 8).bfloat16().float())

    def test_bfloat16_multiplies_in_bfloat16_where_the_cpu_can(self) -> None:
        product = cpu_product(draw(8, 40), torch.bfloat16, features=CpuFeatures(bfloat16=True, onednn=True))
        assert isinstance(product, Bfloat16Product)
        x = draw(5, 40, seed=1)
        assert relative(product.add(x, torch.zeros(5, 8)), x.double() @ draw(8, 40).double().t()) < 0.02

    def test_int8_without_a_library_keeps_its_weights(self) -> None:
        product = cpu_product(draw(8, 8), torch.int8, features=CpuFeatures())
        assert isinstance(product, FloatProduct)
        assert torch.equal(product.matrix, int8.dequantise(*quantise(draw(8, 8))))

    @pytest.mark.skipif(not HERE.onednn, reason="torch has no oneDNN here")
    def test_int8_lasts_when_the_quantised_types_are_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(torch, "_make_per_channel_quantized_tensor")
        product = cpu_product(draw(24, 40), torch.int8, features=CpuFeatures(onednn=True))
        assert isinstance(product, Int8Product)
        assert isinstance(product.multiply, OneDnnMultiply)
        x = draw(3, 40, seed=1)
        assert relative(product.add(x, torch.zeros(3, 24)), x.double() @ draw(24, 40).double().t()) < 0.04
