"""`--stored-as int4`: a model that is trained in the four bits it will be stored in."""

import signal
from pathlib import Path
from typing import Any

import pytest
import small_runs as runs
import torch

from elmokit.lm import LanguageModel
from elmokit.nn.softmax import SoftmaxConfig
from elmokit.pretrain.config import load_config
from elmokit.pretrain.objective import Inputs, Objective
from elmokit.pretrain.rounding import EVERY
from elmokit.weights import load_pretrained, save_pretrained
from elmokit.weights.storage import quantise_groups, round_groups, widen_groups

WIDE: dict[str, Any] = {"cell_dim": 128, "projection_dim": 64, "filters": "1:32,2:32", "steps": 60, "valid_every": 60}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def started(text: Path, output: Path, **changes: Any) -> list[str]:
    return runs.pretraining(text, output=output, **{**WIDE, "stored_as": "int4", **changes})


def test_rounding_is_that_of_the_files_and_rounding_twice_changes_nothing() -> None:
    values = torch.randn(2, 5, 192, generator=torch.Generator().manual_seed(0))
    values[0, 0, :64] = 0
    rounded, scales = round_groups(values)
    packed, stored = quantise_groups(values)
    assert torch.equal(scales, stored)
    assert torch.equal(rounded, widen_groups(packed, stored))
    again, same = round_groups(rounded)
    assert torch.equal(again, rounded)
    assert torch.equal(same[rounded.reshape(*same.shape, 64).any(-1)], scales[rounded.reshape(*same.shape, 64).any(-1)])
    assert not torch.equal(rounded, values)


def test_the_saved_model_is_exact_in_four_bits(text: Path, tmp_path: Path) -> None:
    ended = runs.run_here(started(text, tmp_path / "run", heldout=0.2))
    assert ended.status == 0, ended.said
    model = load_pretrained(tmp_path / "run" / "model")
    save_pretrained(model, tmp_path / "small", dtype="int4")
    small = load_pretrained(tmp_path / "small")
    compared = 0
    for name, values in model.tensors.items():
        if values.shape[-1] % 64 == 0 and not name.endswith("bias"):
            assert torch.equal(small.tensors[name], values.float()), name
            compared += 1
        elif name.endswith("bias"):
            assert len(values.unique()) > 30, name  # not rounded
    assert compared == 9  # of both LSTM layers, highway, projection
    assert model.softmax is not None
    assert small.softmax is not None
    assert torch.equal(small.softmax.named["weight"], model.softmax.named["weight"].float())
    # So the perplexity that the run told is that of the small file.
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    told = [
        LanguageModel.from_pretrained(tmp_path / f, device="cpu", dtype="float32", tokenizer="whitespace")
        .perplexity(lines)
        .mean
        for f in ("run/model", "small")
    ]
    assert told[1] == pytest.approx(told[0], rel=2e-3)  # characters and convolutions are int8 there


def test_training_for_four_bits_learns_as_well_as_rounding_afterwards(text: Path, tmp_path: Path) -> None:
    """From the same model, for as many steps: rounded in every step, or at the end only. Both are judged as int4."""
    lines = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]

    def judged(folder: Path) -> float:
        save_pretrained(load_pretrained(folder / "model"), folder / "small", dtype="int4")
        lm = LanguageModel.from_pretrained(folder / "small", device="cpu", dtype="float32", tokenizer="whitespace")
        return lm.perplexity(lines).mean

    assert runs.run_here(runs.pretraining(text, output=tmp_path / "run", **{**WIDE, "steps": 20})).status == 0
    found = {"before": judged(tmp_path / "run")}
    same = {"steps": 150, "valid_every": 150, "heldout": 0.2, "learning_rate": 0.003}
    for kind in ("float", "int4"):
        out = tmp_path / kind
        command = runs.finetuning(tmp_path / "run" / "model", text, output=out, **same, stored_as=kind)
        ended, advice = runs.run_here(command), f"SMALLER --dtype {'int4' if kind == 'int4' else 'int8'}"
        assert (ended.status, advice in ended.said) == (0, True)
        assert advice.replace("SMALLER", "SMALLER-FOLDER") in (out / "model" / "README.md").read_text()
        found[kind] = judged(out)
    assert found["int4"] < 0.8 * found["before"], found
    assert found["int4"] < 1.02 * found["float"], found


@pytest.mark.parametrize(
    ("change", "why"),
    [({"softmax": "adaptive"}, "an adaptive softmax"), ({"cell_dim": 30, "projection_dim": 20}, "groups of 64")],
)
def test_models_that_cannot_be_rounded_are_refused_before_the_text_is_read(
    text: Path, tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    given = {"cell_dim": 64, "projection_dim": 64, "steps": 2, "stored_as": "int4", **change}
    ended = runs.run_here(runs.pretraining(text, output=tmp_path / "run", **given))
    assert ended.status == 2
    assert why in ended.said
    assert not (tmp_path / "run").exists()


def test_a_step_computes_with_rounded_matrices_and_moves_those_behind_them() -> None:
    config = load_config("tiny", flags={"cell_dim": 64, "projection_dim": 64}).model()
    objective, plain = (
        Objective(config, SoftmaxConfig("full"), 9, stored_as=kind)  # type: ignore[arg-type]
        for kind in ("int4", "float")
    )
    objective.initialise(1)
    objective.choose_scales()
    bilm, softmax = objective.finished()
    plain.bilm.load_state_dict(bilm.state_dict())
    plain.softmax.load_state_dict(softmax.state_dict())
    source = torch.Generator().manual_seed(2)
    types = torch.randint(1, 262, (7, 50), generator=source, dtype=torch.int32)
    which, targets = (torch.randint(0, n, (2, 12), generator=source) for n in (7, 9))
    inputs = Inputs(types, which, targets, torch.ones(12), torch.rand(1))
    losses = [model(inputs, model.zero_state(3))[0] for model in (objective, plain)]
    torch.testing.assert_close(*losses)
    for loss in losses:
        loss.backward()
    for (name, ours), theirs in zip(objective.bilm.named_parameters(), plain.bilm.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)
    torch.testing.assert_close(objective.softmax.weight.grad, plain.softmax.weight.grad)  # type: ignore[union-attr]
    assert objective.finished()[0] is not objective.bilm
    assert plain.finished()[0] is plain.bilm


def test_a_killed_run_ends_with_the_same_weights(text: Path, tmp_path: Path) -> None:
    """Checkpoints lie between two choices of the scales, which are part of them."""
    settings = {"checkpoint_every": EVERY + 7, "steps": 70, "valid_every": 70}
    assert runs.end(runs.start(started(text, tmp_path / "a", **settings))).status == 0
    command = started(text, tmp_path / "b", **settings)
    process = runs.start(command)
    runs.wait_for_step(tmp_path / "b", EVERY + 10, process)
    process.send_signal(signal.SIGKILL)
    runs.end(process)
    assert runs.end(runs.start(command)).status == 0
    runs.assert_same_run(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"softmax": "adaptive"}, "which an adaptive softmax does not go with"),
        (
            {"cell_dim": 16, "projection_dim": 8, "filters": "1:4,2:6"},
            "nothing to store as int4; choose sizes that are",
        ),
    ],
)
def test_what_cannot_be_stored_so_is_refused(text: Path, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    ended = runs.run_here(started(text, tmp_path / "run", **changes))
    assert ended.status == 2
    assert said in " ".join(ended.said.split())
