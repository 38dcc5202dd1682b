"""The fused recurrence against the plain one. On a GPU, or with TRITON_INTERPRET=1 on any machine."""

import os

import pytest
import torch
from lstm_problems import Problem

from elmokit.kernels import LstmRules, reference_lstm

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and not INTERPRETED:
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from elmokit.kernels.triton._lstm_plan import Plan  # noqa: E402
from elmokit.kernels.triton._pieces import Tile  # noqa: E402
from elmokit.kernels.triton.lstm import triton_lstm  # noqa: E402

TILE = Tile(16, 16, 16, 4, 2)
SMALL = {"gates": TILE, "project": TILE, "cell_backward": TILE, "feed_backward": TILE}
LIBRARY = {"library_project": True, "library_du": True, "library_feed": True}
PLANS = {
    "folded": Plan(hoist=False, weave=False, **SMALL),
    "folded, woven": Plan(hoist=False, weave=True, **SMALL),
    "hoisted": Plan(hoist=True, weave=False, **SMALL),
    "hoisted, woven, library": Plan(hoist=True, weave=True, **LIBRARY, **SMALL),
    "library, dx apart": Plan(hoist=False, weave=False, fold_dx=False, **LIBRARY, **SMALL),
    "early": Plan(hoist=False, weave=True, early=True, **SMALL),
    "split sums": Plan(hoist=False, weave=True, project_split=2, feed_split=2, **SMALL),
}
PROBLEMS = {
    "dense": Problem((5,) * 3, D=16, H=32, P=16),
    "shrinking, odd": Problem((18, 18, 7, 2), D=10, H=20, P=6, keep=True, idle=2),
    "no projection, no clip": Problem((3, 2), R=1, D=7, H=12, P=None, keep=True, rules=LstmRules(None, None, 0.0)),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_equals_the_reference(problem: Problem, plan: Plan) -> None:
    results, ends = [], []
    for run, kind in ((reference_lstm, torch.float64), (triton_lstm, torch.float32)):
        parts = [None if p is None else p.to(DEVICE, kind).requires_grad_() for p in problem.parts()]
        kept = problem.kept()
        options = {"keep": None if kept is None else kept.to(DEVICE, kind)}
        if run is triton_lstm:
            options["plan"] = plan
        out, last = run(*problem.arguments(parts), **options)
        ends = ends or [torch.randn_like(value) for value in (out, *last)]
        torch.autograd.backward([out, *last], [end.to(kind) for end in ends])
        results.append(([out, *last], [p.grad for p in parts if p is not None]))
        if run is triton_lstm:
            with torch.no_grad():  # keeps nothing for a gradient, and must not differ
                light, light_last = run(*problem.arguments(parts), **options)
            for ours, same in zip((out, *last), (light, *light_last), strict=True):
                torch.testing.assert_close(ours, same, rtol=0, atol=1e-6)
    for exact, ours in zip(results[0][0], results[1][0], strict=True):
        assert (exact - ours).abs().max() < 1e-5
    for exact, ours in zip(results[0][1], results[1][1], strict=True):
        assert (exact - ours).norm() < 1e-4 * exact.norm()


@pytest.mark.parametrize("fused", ["0", "1"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_gradient_of_the_outputs_alone(problem: Problem, fused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in training, where the state that is carried on has no gradient."""
    monkeypatch.setenv("ELMOKIT_FUSED_STEP", fused)
    results, end = [], None
    for run, kind in ((reference_lstm, torch.float64), (triton_lstm, torch.float32)):
        parts = [None if p is None else p.to(DEVICE, kind).requires_grad_() for p in problem.parts()]
        kept = problem.kept()
        out, _ = run(*problem.arguments(parts), keep=None if kept is None else kept.to(DEVICE, kind))
        end = torch.randn_like(out) if end is None else end
        out.backward(end.to(kind))
        results.append([p.grad for p in parts if p is not None])
    for exact, ours in zip(*results, strict=True):
        assert (exact - ours).norm() < 1e-4 * exact.norm()
