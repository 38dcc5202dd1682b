"""Which kernel runs: the environment variable, the device, the types."""

import subprocess
import sys

import pytest
import torch
from lstm_problems import Problem

from elmokit.errors import ConfigError
from elmokit.kernels import clipped_lstm, reference_lstm


def test_the_reference_runs_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem((3, 2), keep=True)
    given = problem.arguments(problem.parts())
    expected, _ = reference_lstm(*given, keep=problem.kept())
    for wish in ("", "reference"):
        monkeypatch.setenv("ELMOKIT_KERNEL", wish)
        out, _ = clipped_lstm(*given, keep=problem.kept())
        assert torch.equal(out, expected)


def test_wider_weights_and_state_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_KERNEL", "reference")
    problem = Problem((3, 2))
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    out, last = clipped_lstm(x.bfloat16(), weights, state, steps, rules)
    expected, _ = reference_lstm(x, weights, state, steps, rules)
    assert out.dtype == torch.bfloat16
    assert last.c.dtype == state.c.dtype
    assert (out.double() - expected).abs().max() < 0.05


@pytest.mark.parametrize(("wish", "part"), [("fastest", "expected 'reference'"), ("triton", "need CUDA")])
def test_a_wish_that_cannot_be_met(monkeypatch: pytest.MonkeyPatch, wish: str, part: str) -> None:
    monkeypatch.setenv("ELMOKIT_KERNEL", wish)
    problem = Problem((2,))
    with pytest.raises(ConfigError, match=part):
        clipped_lstm(*problem.arguments(problem.parts()))


def test_triton_is_imported_only_where_it_runs() -> None:
    code = "import sys, elmokit.kernels; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
