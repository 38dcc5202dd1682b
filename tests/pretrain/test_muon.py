"""Muon: orthogonal updates of the matrices inside, AdamW for the rest; and the schedule for runs in pieces."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import small_runs as runs
import torch

from elmokit.nn.bilm import initialise
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.optimisation import MOMENTUM, SIZE, build_optimizer, inner_matrices, orthogonalise, rate_at

CONFIG = PretrainConfig(
    cell_dim=24, projection_dim=8, filters=((1, 4), (2, 6)), optimizer="muon", learning_rate=0.01, weight_decay=0.1
)


@pytest.mark.parametrize("shape", [(3, 40, 8), (3, 8, 40), (1, 16, 16)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    made = orthogonalise(torch.randn(*shape, generator=torch.Generator().manual_seed(0)))
    values = torch.linalg.svdvals(made.double())
    assert made.shape == shape
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_two_steps_equal_the_formula() -> None:
    objective = Objective(CONFIG.model(), CONFIG.output(), 50)
    initialise(objective.bilm, seed=1)
    optimizer = build_optimizer(CONFIG, objective, cuda=False)
    layer = objective.bilm.lstm[0]
    before = layer.weight_x.detach().clone()  # (R, 4H, P)
    momentum = torch.zeros_like(before)
    for k in range(2):
        grads = {p: torch.randn(p.shape, generator=torch.Generator().manual_seed(k)) for p in objective.parameters()}
        for p, grad in grads.items():
            p.grad = grad.clone()
        optimizer.step()
        grad = grads[layer.weight_x]
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * grad
        ahead = (1 - MOMENTUM) * grad + MOMENTUM * momentum
        gates = orthogonalise(ahead.reshape(-1, 24, 8)).reshape(before.shape)  # every gate a matrix of its own
        before = before * (1 - 0.01 * 0.1) - 0.01 * SIZE * 24**0.5 * gates
    torch.testing.assert_close(layer.weight_x.detach(), before, rtol=1e-5, atol=1e-6)


def test_what_is_not_a_matrix_inside_moves_as_with_adamw() -> None:
    moved = []
    for kind in ("muon", "adamw"):
        config = replace(CONFIG, optimizer=kind)
        objective = Objective(config.model(), config.output(), 50)
        initialise(objective.bilm, seed=1)
        with torch.no_grad():
            objective.softmax.weight.fill_(0.1)
        for p in objective.parameters():
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
        build_optimizer(config, objective, cuda=False).step()
        moved.append(objective)
    muon, adamw = moved
    inside = {id(p): n for p, n in inner_matrices(muon)}
    named = dict(adamw.named_parameters())
    for name, p in muon.named_parameters():
        assert torch.allclose(p, named[name], atol=1e-7) == (id(p) not in inside), name
        gates = name.endswith(("weight_x", "weight_h"))  # four gates, one above the other
        assert inside.get(id(p), 4 if gates else 1) == (4 if gates else 1), name


def test_killed_midway_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    text = runs.write_text(tmp_path / "text.txt")
    changes = {"optimizer": "muon", "schedule": "constant", "steps": 120, "learning_rate": 0.02}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert runs.end(runs.start(runs.pretraining(text, output=whole, **changes))).status == 0
    losses = list(runs.losses_of(whole).values())
    assert np.mean(losses[-2:]) < 0.85 * losses[0]
    command = runs.pretraining(text, output=killed, **changes)
    process = runs.start(command)
    runs.wait_for_step(killed, 45, process)
    process.kill()
    assert runs.end(process).status == -signal.SIGKILL
    assert runs.end(runs.start(command)).status == 0
    runs.assert_same_run(whole, killed)


def test_the_rate_stays_and_falls_at_the_end() -> None:
    config = PretrainConfig(schedule="constant", decay=0.25, warmup=0.1, final_rate=0.0, learning_rate=1.0)
    rates = [rate_at(share, config) for share in (0.05, 0.1, 0.5, 0.75, 0.875, 1.0)]
    assert rates == pytest.approx([0.5, 1, 1, 1, 0.5, 0])
    assert rate_at(1.0, PretrainConfig(schedule="constant", decay=0.0, learning_rate=1.0)) == 1.0
