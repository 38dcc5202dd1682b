"""Training that diverges: noticed, stopped with a word about the rate, or taken back to where it was well."""

import math
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import small_runs as runs

from elmokit.pretrain.checkpoint import checkpoints
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.optimisation import DivergedError, Watch, rate_at
from elmokit.pretrain.trainer import Stopped, Trainer, step_rate

DIVERGING: dict[str, Any] = {"learning_rate": 3.0, "steps": 600, "checkpoint_every": 10, "warmup": 0.1}


def noticed(losses: Iterable[float], *, shuffled: bool = True) -> int | None:
    """The step at which training counts as diverged."""
    watch = Watch(shuffled=shuffled)
    for step, loss in enumerate(losses, 1):
        watch.see(loss)
        if watch.diverged:
            return step
    return None


def learning(steps: int, *, start: float = 9.0, end: float = 4.0, noise: float = 0.1, seed: int = 0) -> list[float]:
    dice = random.Random(seed)
    return [end + (start - end) * math.exp(-k / 300) + dice.gauss(0, noise) for k in range(steps)]


def test_learning_is_left_alone() -> None:
    for seed in range(5):
        assert noticed(learning(5000, noise=0.3, seed=seed)) is None
    assert noticed(learning(3000, start=4.0, end=3.8, noise=0.3)) is None  # fine-tuning: nearly flat
    assert noticed([0.1] * 1000) is None


def test_spikes_and_recoveries_are_left_alone() -> None:
    losses = learning(4000)
    losses[1000] = losses[1500] = 1e6
    assert noticed(losses) is None
    assert noticed([*losses[:1000], *(20 * 0.98**k + 4 for k in range(2000))]) is None
    assert noticed([*[9.0] * 3, *(50 * 0.98**k + 5 for k in range(2000))]) is None


def test_a_loss_far_above_its_best_is_noticed() -> None:
    collapsed = [*learning(2000), *[7.0 + 0.1 * (-1) ** k for k in range(1000)]]
    found = noticed(collapsed)
    assert found is not None
    assert 2100 <= found <= 2350


def test_a_loss_that_rises_from_the_start_is_noticed() -> None:
    found = noticed([10 + min(k, 190) for k in range(1000)])  # from 10 to 200, and it stays there
    assert found is not None
    assert found <= 150
    slowly = noticed([9.0 + 0.002 * k for k in range(2000)])
    assert slowly is not None
    assert slowly <= 800
    assert noticed([9.0, 60.0, *[40.0] * 1000]) is not None  # within the first steps


def test_harder_text_is_no_divergence_in_corpus_order() -> None:
    easy_first = [*learning(1000, end=2.0), *[4.5] * 1000]
    assert noticed(easy_first, shuffled=True) is not None
    assert noticed(easy_first, shuffled=False) is None
    assert noticed([*easy_first, *[20.0] * 500], shuffled=False) is not None


def test_a_loss_that_is_no_number_is_noticed_at_once() -> None:
    assert noticed([5.0, 4.9, math.nan]) == 3


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def test_it_stops_and_names_the_rate_and_the_last_good_checkpoint(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = runs.pretraining(text, output=folder, **DIVERGING)
    ended = runs.run_here(command)
    assert ended.status == 2
    assert ended.said.count("\n") == 1
    assert "training has diverged near step" in ended.said
    assert "with learning_rate 3:" in ended.said
    assert max(runs.losses_of(folder)) < 400  # long before its end
    kept = sorted((folder / "checkpoints").glob("step-*.pt"))
    assert f"The last good checkpoint is {kept[-1]}:" in ended.said
    good = runs.checkpoint_of(folder)["progress"]
    losses = runs.losses_of(folder)
    assert losses[good["step"]] < max(losses.values()) / 2  # saved before it rose
    assert good["watch"]["high"] == 0
    assert runs.run_here(command) == ended  # the same again: nothing is lost, nothing learnt


def test_a_run_too_short_for_patience_does_not_end_well(text: Path, tmp_path: Path) -> None:
    ended = runs.run_here(runs.pretraining(text, output=tmp_path, learning_rate=24.0, warmup=0.0, steps=30))
    assert ended.status == 2
    assert "training has diverged near step 30 with learning_rate 24:" in ended.said
    assert "There is no checkpoint yet: start in a new folder with a lower learning_rate" in ended.said


def test_it_rewinds_at_half_the_rate_until_it_learns(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = runs.run_here(runs.pretraining(text, output=folder, **DIVERGING))
    assert "--on-divergence rewind resumes there at half the rate" in stopped.said
    at = runs.checkpoint_of(folder)["progress"]["step"]
    command = runs.pretraining(text, output=folder, on_divergence="rewind", **DIVERGING)
    ended = runs.run_here([word for word in command if word != "--quiet"])
    assert ended.status == 0, ended.said
    assert f"back to step {at} with learning_rate 1.5" in ended.said
    assert f"resuming at step {at} of 600" in ended.said
    assert re.search(r"[\d,]+ tokens/s: \d+ s for \d+ steps \(\d+\.\d epochs\), validation aside", ended.said)
    progress = runs.checkpoint_of(folder)["progress"]
    assert progress["rate_scale"] in {2.0**-k for k in range(1, 7)}
    lines = [line for line in runs.log_of(folder) if "loss" in line]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})  # each step once
    assert max(line["learning_rate"] for line in lines[-20:]) <= 3 * progress["rate_scale"]
    assert lines[-1]["loss"] < 4


def test_it_rewinds_to_the_beginning_where_there_is_no_checkpoint(text: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"learning_rate": 24.0, "checkpoint_every": 5000, "warmup": 0.0, "steps": 300}
    command = runs.pretraining(text, output=tmp_path, on_divergence="rewind", **changes)
    ended = runs.run_here([word for word in command if word != "--quiet"])
    assert ended.status == 0, ended.said
    assert "back to step 0 with learning_rate 12" in ended.said


def test_it_gives_up_after_some_rewinds(text: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"learning_rate": 1e20, "steps": 300, "on_divergence": "rewind"}
    ended = runs.run_here(runs.pretraining(text, output=tmp_path, **changes))
    assert ended.status == 2
    assert "after 6 rewinds, training has diverged" in ended.said
    assert "start in a new folder with a lower learning_rate" in ended.said
    assert "--on-divergence" not in ended.said  # it does not help any more


@pytest.mark.parametrize("starts", [1, 2])
def test_a_second_rewind_to_the_same_place_takes_an_older_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    whole, found = Trainer.run, []

    def run(trainer: Trainer) -> Any:
        ended = whole(trainer)
        for _ in range(2 // starts):  # as if the loss had risen at once both times
            trainer._rewind(DivergedError("training has diverged"))
            kept = [path.stem for path in checkpoints(trainer.folder / "checkpoints")]
            found.append((trainer.progress.step, trainer.progress.rate_scale, kept))
        return ended

    monkeypatch.setattr(Trainer, "run", run)
    command = runs.pretraining(text, output=tmp_path, steps=60, checkpoint_every=20, on_divergence="rewind")
    for _ in range(starts):  # two: the run was stopped after the first rewind
        assert runs.run_here(command).status == 0
    (first, half, before), (second, quarter, after) = found
    assert (first, half, quarter) == (60, 0.5, 0.25)
    assert len(before) > 1
    assert f"step-{second:09d}" == before[-2]
    assert before[-1] not in after


def test_a_kill_within_a_rewind_to_an_older_checkpoint_changes_nothing(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, found = Trainer.run, []

    def run(trainer: Trainer) -> Any:
        ended = whole(trainer)
        trainer._rewind(DivergedError("training has diverged"))
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_save", mock.Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                trainer._rewind(DivergedError("training has diverged"))
        found.extend(path.stem for path in checkpoints(trainer.folder / "checkpoints"))
        return ended

    monkeypatch.setattr(Trainer, "run", run)
    command = runs.pretraining(text, output=tmp_path, steps=60, checkpoint_every=20, on_divergence="rewind")
    assert runs.run_here(command).status == 0
    assert found[-1] == "step-000000060"
    assert runs.checkpoint_of(tmp_path)["progress"]["rate_scale"] == 0.5  # it diverges there and goes back once more


def test_a_rewind_keeps_the_best_model_that_was_saved(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, found = Trainer.run, []

    def run(trainer: Trainer) -> Any:
        ended = whole(trainer)
        trainer.progress.best /= 2  # as if a validation since the checkpoint had saved a better model
        best, calls = trainer.progress.best, []
        trainer.save_model = calls.append
        trainer._rewind(DivergedError("training has diverged"))
        trainer._validate(None, False)
        found.append((best, trainer.progress.best, runs.checkpoint_of(tmp_path)["progress"]["best"], calls))
        return ended

    monkeypatch.setattr(Trainer, "run", run)
    command = runs.pretraining(text, output=tmp_path, steps=40, checkpoint_every=20, on_divergence="rewind")
    ended = runs.run_here(command)
    assert ended.status == 0, ended.said
    ((best, kept, saved, calls),) = found
    assert best == kept == saved
    assert calls == []


def test_a_stop_says_where_the_run_resumes() -> None:
    assert str(Stopped(15, 1200, 1200)) == "stopped at step 1,200; the same command resumes there"
    assert str(Stopped(15, 1200, 1000)) == "stopped at step 1,200; the same command resumes from step 1,000"
    assert str(Stopped(15, 12, None)) == "stopped at step 12; the same command resumes from the start"


def test_a_warm_up_by_the_clock_takes_as_many_steps_as_was_tried() -> None:
    config = PretrainConfig(minutes=10.0, learning_rate=1e-3, warmup=0.02, warmup_steps=500)
    # A fast machine: 30,000 steps. Two hundredths of the time are 600 steps, as by steps.
    assert step_rate(config, 300, 0.01) == pytest.approx(rate_at(0.01, config))
    # A slow one: 6,000 steps. Two hundredths would be 120 steps.
    assert step_rate(config, 120, 0.02) == pytest.approx(121 / 500 * 1e-3)
    assert step_rate(config, 499, 0.083) == rate_at(0.083, config)
    # A very slow one: a tenth of the run is enough, however few the steps.
    assert step_rate(config, 5, 0.05) == pytest.approx(0.5e-3)
    assert step_rate(config, 10, 0.1) == rate_at(0.1, config)
    for other in ({"minutes": 0.0}, {"warmup": 0.0}, {"warmup_steps": 0}, {"optimizer": "adagrad"}):
        assert step_rate(replace(config, **other), 5, 0.05) == rate_at(0.05, replace(config, **other))
