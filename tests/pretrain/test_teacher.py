"""`--teacher`: a model that learns to predict another's layers beside the words."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs as runs
import torch

from elmokit import Elmo
from elmokit.nn.softmax import SoftmaxConfig
from elmokit.pretrain.objective import Inputs, Objective
from elmokit.pretrain.teacher import Comparison, Teacher
from elmokit.weights import load_pretrained

QUICK: dict[str, Any] = {"steps": 60, "valid_every": 60, "checkpoint_every": 20, "distil": 10.0}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def taught(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wider model that has learnt the text, the folder of its run."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    wider = {"cell_dim": 24, "projection_dim": 12, "steps": 150, "valid_every": 150}
    assert runs.run_here(runs.pretraining(text, output=folder, **wider)).status == 0
    return folder


def started(model: Path, text: Path, output: Path, *more: str, **changes: Any) -> list[str]:
    return [*runs.pretraining(text, output=output, **{**QUICK, **changes}), "--teacher", str(model), *more]


def unpredicted(model: Path, teacher: Path, text: Path) -> float:
    """How much of the teacher's top layer no linear map of the model's predicts, by least squares on both halves."""
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines()[:200]]
    x, y = (
        np.concatenate([v[-1] for v in Elmo.from_pretrained(m, device="cpu", dtype="float32").encode_layers(lines)])
        for m in (model, teacher)
    )
    halves = []
    for a, b in zip(np.split(x, 2, axis=1), np.split(y, 2, axis=1), strict=True):  # each direction from itself
        a = np.concatenate([a, np.ones((len(a), 1), a.dtype)], axis=1)
        missed = b - a @ np.linalg.lstsq(a, b, rcond=None)[0]
        halves.append(np.square(missed).sum() / np.square(b - b.mean(axis=0)).sum())
    return float(np.mean(halves))


def test_the_learner_comes_nearer_to_its_teacher(text: Path, taught: Path, tmp_path: Path) -> None:
    for weight in (0.0, 10.0):
        command = started(taught / "model", text, tmp_path / str(weight), steps=200, valid_every=200, distil=weight)
        ended = runs.run_here(command)
        assert ended.status == 0, ended.said
    alone, led = (unpredicted(tmp_path / w / "model", taught / "model", text) for w in ("0.0", "10.0"))
    assert led < 0.8 * alone
    # What is saved is the model alone: no matrix of the comparison, no weights of the teacher.
    plain, saved = (load_pretrained(f / "model") for f in (taught, tmp_path / "10.0"))
    assert list(saved.tensors) == list(plain.tensors)
    assert saved.config.lstm.projection_dim == 8
    checkpoint = runs.checkpoint_of(tmp_path / "10.0")
    assert not any("teacher" in name for name in checkpoint["objective"])


def test_the_distance_is_the_share_of_the_variance_that_is_missed() -> None:
    source = torch.Generator().manual_seed(3)
    learner, teacher = (shape_of(width) for width in (4, 6))
    comparison = Comparison(learner, teacher).double()
    mine = [torch.randn(2, 30, 4, generator=source, dtype=torch.float64) for _ in range(3)]
    theirs = [5 + 2 * torch.randn(2, 30, 6, generator=source, dtype=torch.float64) for _ in range(3)]
    with torch.no_grad():
        for offset, y in zip(comparison.offsets, theirs, strict=True):
            offset.copy_(y.mean(dim=1, keepdim=True))
    assert comparison(mine, theirs).item() == pytest.approx(1.0, rel=1e-6)  # the mean predicts nothing
    with torch.no_grad():
        for k, (x, y) in enumerate(zip(mine, theirs, strict=True)):
            for r in range(2):
                a = torch.cat([x[r], torch.ones(30, 1, dtype=torch.float64)], dim=1)
                found = torch.linalg.lstsq(a, y[r]).solution
                comparison.maps[k][r], comparison.offsets[k][r] = found[:-1], found[-1:]
    expected = []
    for k, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        missed = torch.einsum("rnp,rpq->rnq", x, comparison.maps[k]) + comparison.offsets[k] - y
        expected.append((missed**2).sum() / ((y - y.mean(dim=1, keepdim=True)) ** 2).sum())
    assert comparison(mine, theirs).item() == pytest.approx(torch.stack(expected).mean().item(), rel=1e-6)
    assert comparison(mine, theirs).item() < 0.95


def shape_of(width: int) -> Any:
    from elmokit.pretrain.config import load_config

    return load_config("tiny", flags={"cell_dim": 2 * width, "projection_dim": width}).model()


def test_the_teacher_reads_on_over_windows_as_over_the_whole_text(taught: Path) -> None:
    """Two windows with the carried state give the layers of one window; a sentence that starts forgets what was."""
    pretrained = load_pretrained(taught / "model")
    teacher = Teacher(pretrained, dtype=torch.float64, device=CPU)
    objective = Objective(
        pretrained.config, SoftmaxConfig("full"), 9, dtype=torch.float64, teacher=teacher, distil=1.0
    ).double()
    objective.initialise(1)
    B, T = 3, 8
    source = torch.Generator().manual_seed(4)
    types = torch.randint(1, 262, (7, pretrained.config.tokens.max_characters), generator=source, dtype=torch.int32)
    which = torch.randint(0, 7, (2, T * B), generator=source)
    keep = (torch.rand(T * B, generator=source) > 0.2).double()
    targets = torch.randint(0, 9, (2, T * B), generator=source)
    state = objective.zero_state(B)
    n = pretrained.config.n_layers
    assert len(state) == 2 * n
    whole, ended = teacher.layers(types, which, keep, state[n:], B)
    at, pieces, carried = T // 2 * B, [], state
    for part in (slice(0, at), slice(at, T * B)):
        pieces.append(teacher.layers(types, which[:, part], keep[part], carried[n:], B)[0])
        inputs = Inputs(types, which[:, part], targets[:, part], keep[part], torch.rand(1))
        loss, carried = objective(inputs, carried)
        loss.backward()
    for k, layer in enumerate(whole):
        torch.testing.assert_close(torch.cat([p[k] for p in pieces], dim=1), layer)
    for (h, c), (h_whole, c_whole) in zip(carried[n:], ended, strict=True):
        torch.testing.assert_close(h, h_whole)
        torch.testing.assert_close(c, c_whole)
    assert all(p.grad is None for p in teacher.bilm.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in objective.comparison.maps)  # type: ignore[union-attr]


def test_a_killed_run_ends_with_the_same_weights(text: Path, taught: Path, tmp_path: Path) -> None:
    assert runs.run_here(started(taught / "model", text, tmp_path / "a")).status == 0
    command = started(taught / "model", text, tmp_path / "b")
    process = runs.start(command)
    runs.wait_for_step(tmp_path / "b", 25, process)
    process.send_signal(signal.SIGKILL)
    runs.end(process)
    assert runs.end(runs.start(command)).status == 0
    torch.testing.assert_close(
        load_pretrained(tmp_path / "b" / "model").tensors, load_pretrained(tmp_path / "a" / "model").tensors
    )
    # Another teacher, or none, is another run.
    other = runs.run_here(started(tmp_path / "a" / "model", text, tmp_path / "b"))
    assert other.status == 2
    assert "holds a run of another configuration (teacher: " in other.said
    none = runs.run_here([*runs.pretraining(text, output=tmp_path / "b", **QUICK)])
    assert none.status == 2
    assert "holds a run of another configuration (teacher: " in none.said
    again = runs.run_here(command)
    assert again.status == 0, again.said


def test_fine_tuning_with_a_teacher(text: Path, taught: Path, tmp_path: Path) -> None:
    """The model without a softmax learns one first; the teacher is there in both stages."""
    assert runs.run_here(runs.pretraining(text, output=tmp_path / "run", **QUICK)).status == 0
    command = runs.finetuning(
        tmp_path / "run" / "model", text, output=tmp_path / "tuned", steps=40, valid_every=40, checkpoint_every=40,
        softmax_epochs=0.3,
    )  # fmt: skip
    ended = runs.run_here([*command, "--new-softmax", "--teacher", str(taught / "model")])
    assert ended.status == 0, ended.said
    assert json.loads((tmp_path / "tuned" / "config.json").read_text())["given"].keys() == {"model", "teacher"}
    before, after = (unpredicted(tmp_path / f / "model", taught / "model", text) for f in ("run", "tuned"))
    assert after < before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_characters": 20}, "max_characters 50 there, 20 here"),
        ({"n_layers": 1}, "n_layers 2 there, 1 here"),
        ({"directions": "forward"}, "directions forward+backward there, forward here"),
        ({"input": "words"}, "input bytes there, words here"),
    ],
)
def test_a_teacher_that_reads_otherwise_is_refused(
    text: Path, taught: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    ended = runs.run_here(started(taught / "model", text, tmp_path / "run", **changes))
    assert ended.status == 2
    assert f"cannot teach this model ({said}" in " ".join(ended.said.split())
    assert not list(tmp_path.glob("run/checkpoints/*"))
