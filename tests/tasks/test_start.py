"""`train --from`: a training that begins with the network of an earlier model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import SMALL, small_data, small_setup, tiny_elmo, write_columns
from typer.testing import CliRunner

import models
from elmokit import TaskModel, save_pretrained
from elmokit.cli import app
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError, InputError, WeightsError
from elmokit.tasks import load_start
from elmokit.tasks.run import Listener, train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import CHUNK, NER
from elmokit.text import Sentence

STILL = {"epochs": 1, "learning_rate": 1e-9}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TaskModel[Any, Any]:
    train, dev = small_data(tmp_path_factory.mktemp("data"))
    return train_task(NER, small_setup(), train, dev, encoder=tiny_elmo(), device="cpu")


@pytest.fixture(scope="module")
def folder(model: TaskModel[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.save(tmp_path_factory.mktemp("saved") / "model")


def further(folder: Path, data: Path, **flags: object) -> TaskModel[Any, Any]:
    train, dev = small_data(data)
    start = load_start(NER, folder)
    setup = load_setup(NER, flags={**STILL, **flags}, start=start.setup)
    return train_task(NER, setup, train, dev, encoder=tiny_elmo(), start=start, device="cpu")


def test_it_begins_where_the_other_ended(model: TaskModel[Any, Any], folder: Path, tmp_path: Path) -> None:
    begun = further(folder, tmp_path)
    for name, values in model.network.state_dict().items():
        torch.testing.assert_close(begun.network.state_dict()[name], values, atol=1e-6, rtol=0)
    assert begun.setup.features == model.setup.features
    assert begun.setup.settings == model.setup.settings
    assert begun.trained is not None
    assert model.trained is not None
    assert begun.trained.best.score == pytest.approx(model.trained.best.score)


def test_what_a_training_added_to_its_data_is_not_taken_over(folder: Path) -> None:
    earlier = load_start(NER, folder).setup.changed(recut="english", recase=0.5, hidden=9)
    settings = load_setup(NER, start=earlier).settings
    assert (settings.recut, settings.recase, settings.hidden) == ("", 0.0, 9)
    assert load_setup(NER, start=earlier, flags={"recase": 0.1}).settings.recase == 0.1


def test_what_does_not_fit_is_told_before_layers_are_computed(folder: Path, tmp_path: Path) -> None:
    small_data(tmp_path)
    save_pretrained(models.tiny().pretrained, tmp_path / "elmo")
    cache = tmp_path / "cache"
    files = [
        "--train",
        tmp_path / "train.conll",
        "--dev",
        tmp_path / "dev.conll",
        "-o",
        tmp_path / "new",
        "--from",
        folder,
    ]
    given = ["train", "ner", *map(str, files), "-m", str(tmp_path / "elmo"), "--cache", str(cache), "--hidden", "77"]
    ended = CliRunner().invoke(app, given)
    assert "a network of another shape" in str(ended.exception)
    assert not list(cache.rglob("*.npy"))


def test_it_learns_from_there(folder: Path, tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    fresh = train_task(NER, small_setup(epochs=1), train, dev, encoder=tiny_elmo(), device="cpu")
    begun = further(folder, tmp_path, learning_rate=SMALL["learning_rate"], batch_size=SMALL["batch_size"])
    assert begun.trained is not None
    assert fresh.trained is not None
    assert begun.trained.epochs[0].loss < 0.5 * fresh.trained.epochs[0].loss


@pytest.mark.parametrize("change", [{"vectors": "other.vec"}, {"word_dim": 9}, {"min_count": 2}])
def test_the_words_vectors_come_with_it(folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"what the training begins with, so {next(iter(change))} "):
        further(folder, tmp_path, **change)


def test_the_model_to_begin_with_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}
    files = ["--train", tmp_path / "train.conll", "--dev", tmp_path / "dev.conll", "-o", folder, "--from", folder]
    small_data(tmp_path)
    save_pretrained(models.tiny().pretrained, tmp_path / "elmo")
    for more in ([], ["--restart"]):
        given = ["train", "ner", *map(str, files), "-m", str(tmp_path / "elmo"), *more]
        ended = CliRunner().invoke(app, given)
        assert isinstance(ended.exception, InputError)
        assert "is the model to begin with" in str(ended.exception)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_labels_that_the_data_lacks_are_kept(model: TaskModel[Any, Any], folder: Path, tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    people = [e for e in train if not any("LOC" in tag for tag in e.tags)]
    assert 0 < len(people) < len(train)
    start = load_start(NER, folder)
    setup = load_setup(NER, flags=STILL, start=start.setup)
    begun = train_task(NER, setup, people, dev, encoder=tiny_elmo(), start=start, device="cpu")
    assert begun.network.config == model.network.config


def test_labels_that_the_network_lacks_are_refused(folder: Path, tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    strange = replace(train[0], sentence=Sentence(("Ann",)), tags=("B-EVENT",))
    start = load_start(NER, folder)
    setup = load_setup(NER, flags=STILL, start=start.setup)
    with pytest.raises(InputError, match=r"knows no '.*EVENT'"):
        train_task(NER, setup, [strange, *train], dev, encoder=tiny_elmo(), start=start, device="cpu")


def test_another_task_or_shape_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a model of the task 'ner'; expected one of 'chunk'"):
        load_start(CHUNK, folder)
    with pytest.raises(InputError, match="another shape"):
        further(folder, tmp_path, hidden=12)
    with pytest.raises(WeightsError, match="nowhere: no task model"):
        load_start(NER, tmp_path / "nowhere")


def test_a_run_from_one_network_is_not_resumed_from_another(folder: Path, tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    start = load_start(NER, folder)
    setup = load_setup(NER, flags={"epochs": 2}, start=start.setup)

    class StopHereError(Exception):
        pass

    def stop(_: Any) -> None:
        raise StopHereError

    run = tmp_path / "run"
    with pytest.raises(StopHereError):
        train_task(
            NER, setup, train, dev,
            encoder=tiny_elmo(), start=start, folder=run, device="cpu", listener=Listener(epoch=stop),
        )  # fmt: skip
    with pytest.raises(ConfigError, match=f"from: {start.digest} there, None here"):
        train_task(NER, setup, train, dev, encoder=tiny_elmo(), folder=run, device="cpu")
    resumed = train_task(NER, setup, train, dev, encoder=tiny_elmo(), start=start, folder=run, device="cpu")
    whole = train_task(NER, setup, train, dev, encoder=tiny_elmo(), start=start, device="cpu")
    for name, values in whole.network.state_dict().items():
        assert torch.equal(resumed.network.state_dict()[name], values)


def test_the_command(folder: Path, tmp_path: Path) -> None:
    encoder = save_pretrained(models.tiny().pretrained, tmp_path / "encoder")
    data = write_columns(tmp_path / "data.conll", 30, seed=3)
    given = ["train", "ner", "--train", data, "--dev", data, "-o", tmp_path / "out", "-m", encoder, "--from", folder]
    flags = ["--epochs", "1", "--cache", tmp_path / "cache", "--device", "cpu"]
    ended = CliRunner().invoke(app, list(map(str, [*given, *flags])), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    made = TaskModel.from_pretrained(tmp_path / "out", encoder=Elmo.from_pretrained(encoder, device="cpu"))
    assert made.setup.features.word_dim == SMALL["word_dim"]
    fresh = [str(part) for part in [*given[:-2], *flags]]
    with pytest.raises(InputError, match="other settings, data, encoder or start"):
        CliRunner().invoke(app, fresh, catch_exceptions=False)
    assert CliRunner().invoke(app, [*fresh, "--restart"]).exit_code == 0
