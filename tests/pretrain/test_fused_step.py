"""The whole fused step in Triton's interpreter, on any machine: TRITON_INTERPRET=1. On a GPU: test_cuda_steps.py."""

import os
from typing import Any

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs TRITON_INTERPRET=1", allow_module_level=True)
adamw = pytest.importorskip("elmokit.kernels.triton.adamw", reason="Triton is not installed")

from test_cuda_steps import V, a_window, an_objective, check_equal, noise, settings, steps  # noqa: E402

from elmokit.pretrain.step import Step  # noqa: E402


# The interpreter multiplies no bfloat16.
@pytest.mark.parametrize("changes", [{}, {"n_highway": 2, "clip_norm": 0.05}, {"sampling": "published"}])
def test_fused_steps_equal_plain_ones(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Recurrence, convolutions, highway, sampled softmax and AdamW in one pass, four steps long."""
    monkeypatch.setattr(adamw, "LARGE", 64)  # most of these small tensors
    config, device, runs = settings(**changes), torch.device("cpu"), []
    for fused in (True, False):
        monkeypatch.setenv("ELMOKIT_FUSED_STEP", str(int(fused)))
        monkeypatch.setattr("elmokit.kernels.fused", lambda tensor, fused=fused: fused)
        objective = an_objective(config, device)
        step = steps(Step, config, objective, device)
        step.optimizer.defaults["fused"] = fused
        for group in step.optimizer.param_groups:
            group["fused"], group["lr"] = fused, torch.tensor(0.01)
        told = [step([a_window(k, words=20 if k < 3 else V)], noise(objective, k), 0.01) for k in range(4)]
        assert any(p.grad is None for p in objective.parameters()) == fused  # AdamW in one pass takes them away
        runs.append((torch.stack(told), step))
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=1e-5, atol=1e-5)
    check_equal(runs[0][1], runs[1][1], near=1e-4)
