"""Layers for inference on a CPU, in C and in torch: against the plain recurrence, in every mode."""

import pytest
import torch
from lstm_problems import Problem
from torch import Tensor, nn

from elmokit.kernels import LstmRules, LstmState, reference_lstm
from elmokit.kernels.cpu import inference
from elmokit.kernels.cpu.c import CompiledLstm, c_library
from elmokit.kernels.cpu.inference import TorchLstm, inference_lstm
from elmokit.kernels.cpu.int8 import Int8Matrix, dequantise, held, quantise, sides, widened

PROBLEMS = [
    Problem((3, 3, 3)),
    Problem((1,) * 6),
    Problem((4, 2, 1), keep=True, idle=1),
    Problem((2, 2), R=1, P=None, keep=True),
    Problem((3, 1), rules=LstmRules(None, None, 0.0)),
    Problem((40, 40, 17, 3, 1), D=16, H=48, P=16),
    Problem((70, 67, 2), D=16, H=48, P=16),
]
MODES = [("float32", 1e-6), ("bfloat16", 0.02), ("int8", 0.06)]
WAYS = [
    pytest.param(True, marks=pytest.mark.skipif(c_library() is None, reason="nothing runs in C here"), id="C"),
    pytest.param(False, id="torch"),
]


@pytest.fixture
def without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "c_library", lambda: None)


def layer_of(problem: Problem, mode: torch.dtype) -> nn.Module:
    _, weights, _, _, rules = problem.arguments(problem.parts())
    w_x, w_h, bias, w_p = (None if part is None else part.float() for part in weights)
    assert w_x is not None
    assert w_h is not None
    assert bias is not None
    return inference_lstm(w_x, w_h, bias, w_p, rules, mode)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("mode", "allowed"), MODES)
@pytest.mark.parametrize("in_c", WAYS)
@pytest.mark.parametrize("blocked", [True, False])
def test_equals_the_plain_recurrence(
    problem: Problem, mode: str, allowed: float, in_c: bool, blocked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With oneDNN's layout and without, as where torch has none."""
    if not in_c:
        monkeypatch.setattr(inference, "c_library", lambda: None)
    if not blocked:
        monkeypatch.setattr(inference, "has_onednn", lambda: False)
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    expected, last = reference_lstm(x, weights, state, steps, rules, keep=problem.kept())
    kept = problem.kept()
    layer = layer_of(problem, getattr(torch, mode))
    assert isinstance(layer, CompiledLstm if in_c else TorchLstm)
    given = LstmState(state.h.float(), state.c.float())
    before = given.h.clone(), given.c.clone()
    out, ended = layer(x.float(), given, steps, keep=None if kept is None else kept.float())
    for found, exact in ((out, expected), (ended.h, last.h), (ended.c, last.c)):
        assert found.dtype == torch.float32
        assert float((found.double() - exact).norm() / exact.norm()) < allowed
    assert torch.equal(given.h, before[0]), "the state that was given stays as it was"
    assert torch.equal(given.c, before[1])


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.usefixtures("without_c")
def test_torch_multiplies_weights_rounded_as_the_mode_rounds() -> None:
    problem = Problem((3, 2))
    weights = problem.arguments(problem.parts())[1]
    for mode, by in (
        (torch.bfloat16, lambda w: w.bfloat16().float()),
        (torch.int8, lambda w: dequantise(*quantise(w, axes=2))),
    ):
        layer = layer_of(problem, mode)
        assert isinstance(layer, TorchLstm)
        for found, given in zip(layer.weights, weights, strict=True):
            assert found is not None
            assert given is not None
            assert torch.equal(found, by(given.float()) if given.ndim == 3 else given.float())


class TestMatrices:
    def test_int8_is_off_by_half_a_step_of_its_row_at_most(self) -> None:
        matrix = draw(5, 40) * torch.tensor([1e-3, 1, 10, 1000, 0])[:, None]
        values, scale = quantise(matrix)
        assert values.dtype == torch.int8
        assert int(values.abs().max()) == 127
        assert bool(((dequantise(values, scale) - matrix).abs() <= 0.5001 * scale[:, None]).all())

    def test_int8_stays_as_it_is(self) -> None:
        stored = Int8Matrix(*quantise(draw(2, 3, 4), axes=2))
        assert held(stored, torch.int8) is stored
        for k, one in enumerate(sides(stored)):
            assert isinstance(one, Int8Matrix)
            assert torch.equal(dequantise(*one), widened(stored, torch.float32)[k])

    def test_a_stack_is_rounded_as_its_parts_are(self) -> None:
        stack = draw(2, 3, 4)
        for mode in (torch.float32, torch.bfloat16, torch.int8):
            parts = [widened(part, mode) for part in sides(stack)]
            assert torch.equal(widened(stack, mode), torch.stack(parts))
        assert widened(stack, torch.float32).data_ptr() == stack.data_ptr(), "no copy where nothing is rounded"


def test_the_cpu_is_asked_for_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "has_onednn", lambda: True)
    for names, expected in (((), False), (("avx2",), False), (("amx_bf16",), True), (("avx512_bf16",), True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda names=names: dict.fromkeys(names, True))
        assert inference.has_bfloat16() == expected
    monkeypatch.setattr(inference, "has_onednn", lambda: False)
    assert not inference.has_bfloat16()
