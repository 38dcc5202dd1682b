"""A step that is recorded as a CUDA graph does what the plain step does, step after step."""

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.nn.bilm import BiLM, initialise
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.step import CudaGraphStep, Step
from elmokit.pretrain.teacher import Teacher
from elmokit.pretrain.windows import Numbering, Position, Window
from elmokit.weights import CodecSpec, Pretrained

V, ROWS, T = 60, 4, 6
RATES = (0.01, 0.03, 0.0, 0.02, 0.005, 0.01)
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(autouse=True)
def _small_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window with more word types than the first leads to a new recording."""
    monkeypatch.setattr("elmokit.pretrain.step.CAPACITY_STEP", 8)


def settings(**changes: Any) -> PretrainConfig:
    small: dict[str, Any] = {"cell_dim": 16, "projection_dim": 8, "filters": ((1, 4), (2, 4)), "char_dim": 4}
    usual = {"rows": ROWS, "window": T, "dropout": 0.0, "softmax": "sampled", "samples": 12, "weight_decay": 0.3}
    return PretrainConfig(**{**small, **usual, **changes})


def an_objective(config: PretrainConfig, device: torch.device, *, taught: bool = False) -> Objective:
    teacher = None
    if taught:
        wider = settings(cell_dim=24, projection_dim=12).model()
        bilm = BiLM(wider)
        initialise(bilm, seed=9)
        teacher = Teacher(Pretrained.of(bilm, codec=CodecSpec("bytes")), dtype=torch.float32, device=device)
    made = Objective(
        config.model(), config.output(), V, dropout=config.dropout, device=device, teacher=teacher,
        distil=config.distil, stored_as=config.stored_as,
        dtype=torch.bfloat16 if config.precision == "bfloat16" else torch.float32,
    )  # fmt: skip
    made.initialise(3)
    with torch.no_grad():
        for parameter in made.parameters():  # decay of a zero would not show
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)).to(device))
    return made.train()


def a_window(seed: int, *, words: int, carried: bool = True) -> Window:
    """Words from the first `words` of all; the state is carried on from the window before, but for one row."""
    dice = np.random.default_rng(seed)
    ids, targets = dice.integers(0, words, (2, 2, T * ROWS))
    keep = np.ones((T, ROWS), dtype=np.float32)
    keep[0, : 1 if carried else ROWS] = keep[2, 1] = 0
    types, which = Numbering(V)(ids.astype(np.uint32))
    return Window(types, which, targets, keep.reshape(-1), Position())


class Table:
    """Rows of word types, as `TypeCodes` gives them; with forms, each word has three."""

    words = V // 3

    def __init__(self, device: torch.device) -> None:
        source = torch.Generator().manual_seed(1)
        self.rows = torch.randint(1, 262, (V, 50), generator=source, dtype=torch.int32).to(device)

    def __call__(self, types: NDArray[np.int64]) -> Tensor:
        return self.rows[torch.from_numpy(types)]


def steps(kind: type[Step], config: PretrainConfig, objective: Objective, device: torch.device) -> Step:
    codes: Any = Table(device)
    return kind(objective, config, codes, batch_rows=ROWS, device=device)


def noise(objective: Objective, seed: int) -> Tensor:
    return torch.rand(objective.noise_shape(), generator=torch.Generator().manual_seed(seed))


def tensors(step: Step) -> dict[str, Tensor]:
    """All that a step changes."""
    found = {name: p.detach() for name, p in step.objective.named_parameters()}
    for layer, state in enumerate(step.states[0]):
        found |= {f"h{layer}": state.h, f"c{layer}": state.c}
    for owner, p in step.objective.named_parameters():
        memory = step.optimizer.state.get(p, {})
        found |= {f"{name} of {owner}": value for name, value in memory.items() if isinstance(value, Tensor)}
    return found


def check_equal(found: Step, wanted: Step, *, near: float) -> None:
    expected = tensors(wanted)
    assert tensors(found).keys() == expected.keys()
    for name, value in tensors(found).items():
        torch.testing.assert_close(value, expected[name], rtol=near, atol=near, msg=lambda m, n=name: f"{n}: {m}")


def compare(
    first: type[Step], second: type[Step], config: PretrainConfig, device: torch.device, *, taught: bool = False
) -> None:
    """Steps of either kind from the same weights, with the same windows, rates and random numbers."""
    near = 2e-2 if config.optimizer == "muon" and device.type == "cuda" else 5e-4  # Muon multiplies in bfloat16
    objective = an_objective(config, device, taught=taught)
    one, other = (steps(kind, config, copy.deepcopy(objective), device) for kind in (first, second))
    one.scale = other.scale = 3.0  # as where published gradients count: the norm that is told shows it
    for k, rate in enumerate(RATES):
        window, drawn = a_window(k, words=20 if k < 3 else V), noise(objective, k)
        if k % 2 == 0:
            one.objective.choose_scales()
            other.objective.choose_scales()
        found, wanted = one([window], drawn, rate), other([window], drawn, rate)
        torch.testing.assert_close(found, wanted, rtol=near, atol=near)
        check_equal(one, other, near=near)
        if k == 4:  # a checkpoint of one is read by the other
            memory = copy.deepcopy(one.optimizer.state_dict())
            states = [[type(s)(s.h.clone(), s.c.clone()) for s in one.states[0]]]
            other.load(memory, states)
            one.load(copy.deepcopy(memory), [[type(s)(s.h.clone(), s.c.clone()) for s in states[0]]])


@pytest.mark.parametrize("clip", [0.05, 1000.0])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_recorded_steps_equal_plain_ones(optimizer: Any, clip: float) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*capturable.*")
        compare(CudaGraphStep, Step, settings(optimizer=optimizer, clip_norm=clip), torch.device("cuda"))


@pytest.mark.parametrize("stored_as", ["float", "int4"])
@pytest.mark.parametrize(("taught", "recase"), [(False, 0.0), (True, 0.0), (True, 0.5)])
def test_recorded_steps_with_a_teacher_and_for_four_bits(taught: bool, recase: float, stored_as: Any) -> None:
    shape = {"cell_dim": 64, "projection_dim": 64, "filters": ((1, 32), (2, 32)), "stored_as": stored_as}
    shape |= {"recase": recase}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*capturable.*")
        compare(CudaGraphStep, Step, settings(**shape), torch.device("cuda"), taught=taught)


@pytest.mark.parametrize("changes", [{}, {"softmax": "full"}, {"n_highway": 2}, {"precision": "bfloat16"}])
def test_fused_elementwise_work_changes_nothing(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and weights with the fused kernels, and with plain torch instead."""
    adamw = pytest.importorskip("elmokit.kernels.triton.adamw")
    monkeypatch.setattr(adamw, "LARGE", 64)  # so that AdamW in one pass moves some of these small tensors
    config, runs = settings(**changes), []
    for fused in ("1", "0"):
        monkeypatch.setenv("ELMOKIT_FUSED_STEP", fused)
        objective = an_objective(config, torch.device("cuda"))
        step = steps(CudaGraphStep, config, objective, torch.device("cuda"))
        losses = [step([a_window(k, words=20 if k < 3 else V)], noise(objective, k), 0.01) for k in range(5)]
        runs.append((torch.stack(losses), step))
    if config.precision == "bfloat16":  # AdamW's first steps have the size of the rate, however small a gradient is
        torch.testing.assert_close(runs[0][0], runs[1][0], rtol=3e-2, atol=3e-2)
        return
    torch.testing.assert_close(runs[0][0], runs[1][0], rtol=5e-4, atol=5e-4)
    check_equal(runs[0][1], runs[1][1], near=5e-4)


def test_every_replay_draws_other_units() -> None:
    """Dropout inside a graph: the same window twice gives two losses, and the same seed the same ones again."""
    config = settings(dropout=0.5)
    runs = []
    for _ in range(2):
        objective = an_objective(config, torch.device("cuda"))
        step = steps(CudaGraphStep, config, objective, torch.device("cuda"))
        torch.cuda.manual_seed(7)
        window, drawn = a_window(0, words=20, carried=False), noise(objective, 0)
        runs.append([step([window], drawn, 0.0)[0].item() for _ in range(4)])
    assert len(set(runs[0])) == 4
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5)
