"""The plain recurrence against a loop over single numbers' vectors, and its gradients against finite differences."""

import pytest
import torch
from lstm_problems import Problem
from torch import Tensor

from elmokit.kernels import LstmRules, LstmState, reference_lstm

PROBLEMS = [
    Problem((3, 3, 3)),
    Problem((4, 2, 1), keep=True, idle=1),
    Problem((2, 2), R=1, P=None, keep=True),
    Problem((3, 1), rules=LstmRules(None, None, 0.0)),
]


def naive(problem: Problem) -> tuple[Tensor, LstmState]:
    """One row of one direction at a time, each formula as the contract writes it."""
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    keep = problem.kept()
    out = x.new_zeros(problem.R, sum(steps), state.h.shape[2])
    last_h, last_c = state.h.clone(), state.c.clone()
    for r in range(problem.R):
        for row in range(state.h.shape[1]):
            h, c = state.h[r, row], state.c[r, row]
            for t in range(len(steps)):
                if row >= steps[t]:
                    break
                at = sum(steps[:t]) + row
                kept = 1.0 if keep is None else keep[r, at]
                h, c = h * kept, c * kept
                i, j, f, o = (weights.x[r] @ x[r, at] + weights.h[r] @ h + weights.bias[r]).view(4, -1)
                c = torch.sigmoid(f + rules.forget_bias) * c + torch.sigmoid(i) * torch.tanh(j)
                if rules.cell_clip is not None:
                    c = c.clip(-rules.cell_clip, rules.cell_clip)
                h = torch.sigmoid(o) * torch.tanh(c)
                if weights.projection is not None:
                    h = weights.projection[r] @ h
                    if rules.proj_clip is not None:
                        h = h.clip(-rules.proj_clip, rules.proj_clip)
                out[r, at] = h
            last_h[r, row], last_c[r, row] = h, c
    return out, LstmState(last_h, last_c)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("grad", [True, False])
def test_equals_the_naive_loop(problem: Problem, grad: bool) -> None:
    expected, expected_last = naive(problem)
    with torch.set_grad_enabled(grad):
        out, last = reference_lstm(*problem.arguments(problem.parts()), keep=problem.kept())
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(last.h, expected_last.h, rtol=0, atol=1e-12)
    torch.testing.assert_close(last.c, expected_last.c, rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS[1:3])
def test_gradients(problem: Problem) -> None:
    parts = problem.parts()
    leaves = [part.requires_grad_() for part in parts if part is not None]

    def run(*given: Tensor) -> tuple[Tensor, ...]:
        rest = iter(given)
        out, last = reference_lstm(
            *problem.arguments([None if part is None else next(rest) for part in parts]), keep=problem.kept()
        )
        return out, last.h, last.c

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


def test_a_zero_in_keep_starts_a_row_anew() -> None:
    problem = Problem((3,) * 4)
    x, weights, state, steps, rules = problem.arguments(problem.parts())
    keep = torch.ones(2, 12, dtype=torch.float64)
    keep[:, 6:9] = 0.0  # before the third step
    out, _ = reference_lstm(x, weights, state, steps, rules, keep=keep)
    zero = LstmState(torch.zeros_like(state.h), torch.zeros_like(state.c))
    fresh, _ = reference_lstm(x[:, 6:], weights, zero, steps[2:], rules)
    torch.testing.assert_close(out[:, 6:], fresh, rtol=0, atol=1e-12)
