"""Several processes compute what one does with the same batch, and any number of them can go on with a run."""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_runs as runs
import torch

from elmokit.errors import ElmokitError
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.processes import backend_for
from elmokit.pretrain.trainer import fitting_rows

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SETTINGS: dict[str, Any] = {"steps": 150, "dropout": 0.0, "state": "carry", "log_every": 1, "valid_every": 50}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture(scope="module")
def alone(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert runs.run_here(runs.pretraining(text, output=folder, **SETTINGS)).status == 0
    return folder


def assert_close(found: dict[int, float], wanted: dict[int, float], *, rtol: float = 1e-5) -> None:
    assert found.keys() <= wanted.keys()
    for step, loss in found.items():
        assert loss == pytest.approx(wanted[step], rel=rtol), step


def test_two_processes_equal_one_and_go_on_in_any_number(text: Path, alone: Path, tmp_path: Path) -> None:
    folder, wanted = tmp_path / "run", runs.losses_of(alone)
    assert len(wanted) == 150
    command = runs.pretraining(text, output=folder, **SETTINGS)
    process = runs.start(command, before=TORCHRUN)
    runs.wait_for_step(folder, 12, process)
    process.send_signal(signal.SIGTERM)  # torchrun hands it on
    stopped = runs.end(process)
    assert stopped.status != 0
    assert stopped.said.count("stopped at step") == 1  # the first process speaks for all
    assert "strides" not in stopped.said  # of filters of width 1, of which torch would warn
    step = runs.checkpoint_of(folder)["progress"]["step"]
    assert 12 <= step < 150
    assert_close(runs.losses_of(folder), wanted)
    assert len(runs.losses_of(folder)) == step

    process = runs.start(runs.pretraining(text, output=folder, **{**SETTINGS, "checkpoint_every": 5}), before=TORCHRUN)
    runs.wait_for_step(folder, step + 8, process)
    process.send_signal(signal.SIGTERM)
    runs.end(process)
    later = runs.checkpoint_of(folder)["progress"]["step"]
    assert later >= step + 8
    assert_close(runs.losses_of(folder), wanted)

    assert runs.run_here(command).status == 0  # and alone to the end
    assert_close(runs.losses_of(folder), wanted)
    assert len(runs.losses_of(folder)) == 150
    for found, want in zip(runs.perplexities_of(folder), runs.perplexities_of(alone), strict=True):
        assert found == pytest.approx(want, rel=1e-4)


def test_parts_of_a_batch_add_up_to_it(text: Path, alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert runs.run_here(runs.pretraining(text, output=folder, accumulate=2, **SETTINGS)).status == 0
    assert_close(runs.losses_of(folder), runs.losses_of(alone))


def test_rows_do_not_depend_on_the_number_of_processes() -> None:
    config = PretrainConfig(rows=64, window=10, accumulate=2)
    for positions in (10_000, 1000, 700):
        found = {fitting_rows(config, positions, processes) for processes in (1, 2, 4)}
        assert len(found) == 1
    assert fitting_rows(config, 10_000, 1) == 64
    assert fitting_rows(config, 700, 1) == 16
    with pytest.raises(ElmokitError, match=r"16 rows \(instead of 64: .*\) cannot be divided among 3 processes x 2"):
        fitting_rows(config, 700, 3)
    with pytest.raises(ElmokitError, match="only 15 tokens: too few for 2 rows of 10 steps"):
        fitting_rows(config, 15, 1)
    single = replace(config, rows=1, accumulate=1)
    assert fitting_rows(single, 10, 1) == 1
    with pytest.raises(ElmokitError, match="only 9 tokens: too few for 1 rows of 10 steps"):
        fitting_rows(single, 9, 1)  # it would look for its first window for ever


@pytest.mark.parametrize(
    ("place", "size", "machines", "wanted"),
    [
        ("cpu", 2, "1", "gloo"),
        ("cuda", 2, "1", "nccl"),  # each has its own
        ("cuda:0", 2, "1", "gloo"),  # both on the same one
        ("cuda:0", 2, "2", "nccl"),  # one on each machine
        ("cuda:0", 3, "2", "gloo"),  # two on one machine: the third, alone on the other, must agree with them
        ("cuda:0", 2, None, "nccl"),  # not started by torchrun
    ],
)
def test_processes_that_share_a_gpu_do_not_use_nccl(
    place: str, size: int, machines: str | None, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machines is None:
        monkeypatch.delenv("GROUP_WORLD_SIZE", raising=False)
    else:
        monkeypatch.setenv("GROUP_WORLD_SIZE", machines)
    assert backend_for(torch.device(place), size) == wanted


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-3), ("bfloat16", 3e-3)])
def test_two_processes_on_one_gpu_equal_one(text: Path, tmp_path: Path, precision: str, near: float) -> None:
    """By the public command; the processes talk over gloo, since NCCL allows a GPU to one process only."""
    settings = {**SETTINGS, "device": "cuda:0", "precision": precision, "steps": 30, "valid_every": 15, "rows": 8}
    for folder, before in ((tmp_path / "alone", None), (tmp_path / "both", TORCHRUN)):
        ended = runs.end(runs.start(runs.pretraining(text, output=folder, **settings), before=before, gpus=True))
        assert ended.status == 0, ended.said
    wanted, found = runs.losses_of(tmp_path / "alone"), runs.losses_of(tmp_path / "both")
    assert len(found) == 30
    assert_close(found, wanted, rtol=near)
    assert wanted[30] < wanted[1] - 0.2  # it learns
    for a, b in zip(runs.perplexities_of(tmp_path / "both"), runs.perplexities_of(tmp_path / "alone"), strict=True):
        assert a == pytest.approx(b, rel=5 * near)
