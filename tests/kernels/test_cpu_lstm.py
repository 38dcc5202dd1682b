"""The CPU's recurrence against the plain one, in every mode."""

import pytest
import torch
from lstm_problems import Problem

from elmokit.kernels import LstmRules, LstmState, clipped_lstm, reference_lstm
from elmokit.kernels.contract import PreparedRecurrence
from elmokit.kernels.cpu import layout as cpu_prepare
from elmokit.kernels.cpu import lstm as cpu_lstm
from elmokit.kernels.cpu.c import NativeLstm, c_library
from elmokit.kernels.cpu.features import cpu_features
from elmokit.kernels.cpu.int8 import Int8Product
from elmokit.kernels.cpu.layout import prepare_lstm
from elmokit.kernels.cpu.lstm import CpuLstm

PROBLEMS = [
    Problem((3, 3, 3)),
    Problem((1,) * 6),
    Problem((4, 2, 1), keep=True, idle=1),
    Problem((2, 2), R=1, P=None, keep=True),
    Problem((3, 1), rules=LstmRules(None, None, 0.0)),
    Problem((40, 40, 17, 3, 1), D=16, H=48, P=16),
]


def prepared(problem: Problem, mode: torch.dtype) -> PreparedRecurrence:
    _, weights, _, _, rules = problem.arguments(problem.parts())
    w_x, w_h, bias, w_p = (None if part is None else part.float() for part in weights)
    assert w_x is not None
    assert w_h is not None
    assert bias is not None
    return prepare_lstm(list(w_x), list(w_h), bias, None if w_p is None else list(w_p), rules, mode)


@pytest.fixture
def without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no compiler: torch runs int8 too. What C does of it has its own tests."""
    monkeypatch.setattr(cpu_prepare, "c_library", lambda: None)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("mode", "allowed"), [("float32", 1e-6), ("bfloat16", 0.02), ("int8", 0.06)])
@pytest.mark.parametrize("size", [1, 16 << 20])
@pytest.mark.usefixtures("without_c")
def test_equals_the_plain_recurrence(
    problem: Problem, mode: str, allowed: float, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a stretch is one step and a direction runs alone, or all are taken at once."""
    monkeypatch.setattr(cpu_lstm, "STRETCH_BYTES", size)
    monkeypatch.setattr(cpu_lstm, "TOGETHER_BYTES", size)
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    expected, last = reference_lstm(x, weights, state, steps, rules, keep=problem.kept())
    kept = problem.kept()
    layer = prepared(problem, getattr(torch, mode))
    assert isinstance(layer, CpuLstm)
    given = LstmState(state.h.float(), state.c.float())
    before = given.h.clone(), given.c.clone()
    out, ended = layer(x.float(), given, steps, keep=None if kept is None else kept.float())
    for found, exact in ((out, expected), (ended.h, last.h), (ended.c, last.c)):
        assert found.dtype == torch.float32
        assert float((found.double() - exact).norm() / exact.norm()) < allowed
    assert torch.equal(given.h, before[0]), "the state that was given stays as it was"
    assert torch.equal(given.c, before[1])


@pytest.mark.skipif(c_library() is None, reason="nothing runs in C here")
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("mode", "allowed"), [("float32", 1e-6), ("bfloat16", 0.02), ("int8", 0.06)])
def test_equals_the_plain_recurrence_in_c(problem: Problem, mode: str, allowed: float) -> None:
    """Through the same door."""
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    expected, last = reference_lstm(x, weights, state, steps, rules, keep=problem.kept())
    layer = prepared(problem, getattr(torch, mode))
    assert isinstance(layer, CpuLstm if mode == "bfloat16" and cpu_features().bfloat16 else NativeLstm)
    out, ended = layer(x, state, steps, keep=problem.kept())
    for found, exact in ((out, expected), (ended.h, last.h), (ended.c, last.c)):
        assert found.dtype == torch.float32
        assert float((found.double() - exact).norm() / exact.norm()) < allowed


@pytest.mark.skipif(not cpu_features().onednn, reason="torch has no oneDNN here")
@pytest.mark.usefixtures("without_c")
def test_int8_runs_in_torch_where_there_is_no_compiler() -> None:
    layer = prepared(Problem((3, 2)), torch.int8)
    assert isinstance(layer, CpuLstm)
    assert all(isinstance(part, Int8Product) for part in (layer.input, layer.recurrent, layer.projection))


def test_zero_state_gives_what_any_state_gives() -> None:
    """The first product is left out there."""
    problem = Problem((3, 2))
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    zero = LstmState(torch.zeros_like(state.h), torch.zeros_like(state.c))
    expected, _ = reference_lstm(x, weights, zero, steps, rules)
    out, _ = prepared(problem, torch.float32)(x.float(), LstmState(zero.h.float(), zero.c.float()), steps)
    assert float((out - expected).abs().max()) < 1e-5


def test_it_runs_where_no_gradient_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem((3, 2), keep=True)
    parts = [None if part is None else part.float() for part in problem.parts()]
    kept = problem.kept()
    assert kept is not None
    ran = []
    real = cpu_lstm.cpu_lstm
    monkeypatch.setattr(cpu_lstm, "cpu_lstm", lambda *a, **k: ran.append(1) or real(*a, **k))
    expected, _ = clipped_lstm(*problem.arguments(parts), keep=kept.float())
    assert not ran
    with torch.no_grad():
        out, _ = clipped_lstm(*problem.arguments(parts), keep=kept.float())
    assert ran
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
