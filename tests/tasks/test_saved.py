"""Saved task models: the same predictions, the same encoder and tokenizer or none."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_tasks import small_data, small_setup, tiny_elmo
from typer.testing import CliRunner

import elmokit
import models
from elmokit import Tagger, TaskModel
from elmokit.cli import app
from elmokit.encoders import Elmo
from elmokit.encoders.changed import CAME_WITH
from elmokit.errors import ElmokitWarning, InputError, WeightsError
from elmokit.tasks.command import summary
from elmokit.tasks.run import train_task
from elmokit.tasks.saved import is_task_model, read_description
from elmokit.tasks.tagging.task import NER
from elmokit.weights import bundled, load_pretrained, save_pretrained
from elmokit.weights.load import BUNDLED, bundled_models

TEXT = "Ann sees the cat. New York sees Bob and New Delhi."
GIVE = "Give the encoder that was used with --model"


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(models.tiny().pretrained, tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> TaskModel[Any, Any]:
    train, dev = small_data(tmp_path_factory.mktemp("data"))
    elmo = Elmo.from_pretrained(encoder_folder, device="cpu")
    return train_task(NER, small_setup(epochs=3), train, dev, encoder=elmo, device="cpu")


def convert(*given: object) -> None:
    CliRunner().invoke(app, ["convert", *map(str, given)], catch_exceptions=False)


def test_the_same_predictions_with_places_in_the_text(model: TaskModel[Any, Any], tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    assert is_task_model(folder)
    tagger = Tagger.from_pretrained(folder, device="cpu")
    found = tagger.predict(TEXT)
    assert found == model.predict(TEXT)
    assert len(found) == 2
    spans = [span for sentence in found for span in sentence.spans]
    assert [(span.text, span.type) for span in spans] == [
        ("Ann", "PER"),
        ("New York", "LOC"),
        ("Bob", "PER"),
        ("New Delhi", "LOC"),
    ]
    assert all(TEXT[span.start : span.end] == span.text for span in spans)
    assert tagger.predict([TEXT, "", "Bob"]) == [found, [], tagger.predict("Bob")]
    assert tagger.trained == model.trained
    assert tagger.setup == model.setup
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.json", "training.json", "weights.safetensors", "words.txt"),
    ]
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "none is for its owner alone"


def test_what_predict_cannot_take_is_refused(model: TaskModel[Any, Any]) -> None:
    assert model.predict(("Bob", "Ann")) == [model.predict("Bob"), model.predict("Ann")]  # a tuple of texts is a list
    assert model.predict([]) == []
    for wrong in (3, b"Bob", {"text": "Bob"}, np.array(["Bob"])):
        with pytest.raises(
            InputError, match=rf"predict got .*\({type(wrong).__name__}\); expected one thing or a list"
        ):
            model.predict(wrong)
    with pytest.raises(InputError, match=r"got '3' \(int\); expected a text, or a list of texts"):
        model.predict([3])
    with pytest.raises(InputError, match=r"got \"\('Bob', 'Ann'\)\" \(tuple\); expected a text"):
        model.predict([("Bob", "Ann")])


@pytest.mark.slow
def test_predict_is_typed(tmp_path: Path) -> None:
    """One thing to one answer, a list to a list, for each kind of model."""
    (tmp_path / "typed.py").write_text(
        """
from typing import assert_type
from elmokit import Classifier, CoreferenceResolver, PairClassifier, QuestionAnswerer, RoleLabeller, Tagger
from elmokit.tasks import Answer, ClassPrediction, Resolved, Roles, TaggedSentence

def check(a: Classifier, b: CoreferenceResolver, c: PairClassifier, d: QuestionAnswerer, e: RoleLabeller, f: Tagger):
    assert_type(a.predict(""), ClassPrediction)
    assert_type(a.predict([""]), list[ClassPrediction])
    assert_type(b.predict(""), Resolved)
    assert_type(b.predict([""]), list[Resolved])
    assert_type(c.predict(("", "")), ClassPrediction)
    assert_type(c.predict([("", "")]), list[ClassPrediction])
    assert_type(d.predict(("", "")), Answer)
    assert_type(d.predict([("", "")]), list[Answer])
    assert_type(e.predict(""), list[Roles])
    assert_type(e.predict([""]), list[list[Roles]])
    assert_type(f.predict(""), list[TaggedSentence])
    assert_type(f.predict([""]), list[list[TaggedSentence]])
""",
        encoding="utf-8",
    )
    options = ["--check-untyped-defs", "--ignore-missing-imports", "--follow-imports", "silent"]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", tmp_path / "cache", "typed.py"]
    found_at = {**os.environ, "MYPYPATH": str(Path(elmokit.__file__).parents[1])}
    done = subprocess.run(command, cwd=tmp_path, env=found_at, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_another_encoder_is_refused(model: TaskModel[Any, Any], tmp_path: Path, encoder_folder: Path) -> None:
    folder = model.save(tmp_path / "model")
    stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert stated["encoder"]["source"] == str(encoder_folder)
    assert stated["tokenizer"] == {"name": "english", "version": 1} | stated["tokenizer"]
    with pytest.raises(
        WeightsError,
        match=rf"another encoder .fingerprint.*{GIVE}; or make {folder} again with 'a tiny model', or go on",
    ):
        Tagger.from_pretrained(folder, encoder=tiny_elmo(seed=5))
    other_words = Elmo(load_pretrained(encoder_folder), device="cpu", tokenizer="unicode")
    with pytest.raises(WeightsError, match=r"tokenizer 'english' version 1, but the encoder given.*'unicode'"):
        Tagger.from_pretrained(folder, encoder=other_words)
    stated["encoder"]["source"] = str(tmp_path / "gone")
    del stated["checksum"]
    (folder / "config.json").write_text(json.dumps(stated, indent=2), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"gone', which cannot be loaded .*say where that encoder is"):
        Tagger.from_pretrained(folder)
    assert Tagger.from_pretrained(folder, encoder=encoder_folder).predict(TEXT) == model.predict(TEXT)


def test_another_encoder_on_request(model: TaskModel[Any, Any], tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    with pytest.warns(ElmokitWarning, match=r"another encoder .*going on with it, as asked: results may be worse"):
        other = Tagger.from_pretrained(folder, encoder=tiny_elmo(seed=5), allow_other_encoder=True)
    assert other.predict(TEXT)
    wider = Elmo(models.tiny(models.tiny_options(lstm={"n_layers": 1})).pretrained, device="cpu")
    what = "whose vectors have another number of layers or another width, so it cannot be used instead"
    with pytest.raises(WeightsError, match=rf"\), {what}\. {GIVE}; or make {folder} again with 'a tiny model'$"):
        Tagger.from_pretrained(folder, encoder=wider, allow_other_encoder=True)


def test_the_bundled_model_has_changed(
    model: TaskModel[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that was trained on an earlier one says so, and how to get that."""
    folder = model.save(tmp_path / "model", encoder_source="en")
    with pytest.raises(WeightsError, match=r"The model 'en' that comes with elmokit has changed .*git log -- src/elm"):
        Tagger.from_pretrained(folder)
    used = json.loads((folder / "config.json").read_text(encoding="utf-8"))["encoder"]["fingerprint"]
    monkeypatch.setitem(CAME_WITH, used, ("en", "abc1234"))
    with pytest.raises(WeightsError, match=r"has changed since.*git worktree add ../old abc1234.*models/en;"):
        Tagger.from_pretrained(folder)
    with pytest.raises(WeightsError, match=r"It was the model 'en' that came .*--model en, .*--allow-other-encoder"):
        Tagger.from_pretrained(folder, encoder=tiny_elmo(seed=5))


def test_the_fingerprints_of_bundled_models_are_known() -> None:
    """So that what is made with the one of today can name its commit when there is another."""
    for name in bundled_models():
        now = Elmo.from_pretrained(name, device="cpu").fingerprint
        assert CAME_WITH[now][0] == name
        assert len(CAME_WITH[now][1]) >= 7


def test_ready_made_models_by_name(
    model: TaskModel[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder_folder: Path
) -> None:
    monkeypatch.setattr(bundled, "BUNDLED", tmp_path / "models")
    folder = model.save(tmp_path / "models" / "tasks" / "names")
    monkeypatch.chdir(tmp_path)
    ready = Tagger.from_pretrained("names", encoder=encoder_folder)
    assert (ready.source, ready.predict(TEXT)) == (str(folder), model.predict(TEXT))
    with pytest.raises(WeightsError, match=r"no task model.*By name come with elmokit: names"):
        Tagger.from_pretrained("nouns")
    model.save(tmp_path / "names")
    with pytest.warns(ElmokitWarning, match="the folder names here is taken, not the model names that comes with"):
        assert Tagger.from_pretrained("names", encoder=encoder_folder).source == "names"


@pytest.mark.parametrize("dtype", ["float16", "int8", "int4"])
def test_a_model_in_fewer_bytes(model: TaskModel[Any, Any], tmp_path: Path, dtype: str) -> None:
    whole, small = model.save(tmp_path / "whole", identity="of the training"), tmp_path / "small"
    convert(whole, small, "--dtype", dtype)
    assert read_description(small).identity == "of the training"
    assert read_description(small).encoder == read_description(whole).encoder
    stored = load_file(small / "weights.safetensors")
    assert stored["lstms.0.weight_ih_l0"].dtype == (torch.float16 if dtype == "float16" else torch.int8)
    back = Tagger.from_pretrained(small, device="cpu")
    before, after = model.network.state_dict(), back.network.state_dict()
    for name, values in before.items():
        assert after[name].dtype == torch.float32
        step = values.abs().max().item() / 127  # of an int8 number
        torch.testing.assert_close(after[name], values, atol=0.6 * step + 1e-3 * step * 127, rtol=0)
    assert back.predict(TEXT) == model.predict(TEXT)
    for other in (["--to", "official"], ["--calibrate", "text.txt"], ["--licence", "mit"], ["--no-softmax"]):
        with pytest.raises(WeightsError, match="only --dtype and --overwrite fit"):
            convert(whole, tmp_path / "other", *other)
    with pytest.raises(WeightsError, match="already"):
        convert(whole, small)


def test_the_end_of_a_training_is_told(model: TaskModel[Any, Any]) -> None:
    assert model.trained is not None
    best = model.trained.best
    first, *mixes = summary(model)
    assert first.startswith(f"best epoch {best.number} of 3: dev ")
    assert f"{100 * best.score:.2f}" in first
    assert len(mixes) == len(model.mixes) > 0
    untold = copy.copy(model)
    untold.trained = None
    assert list(summary(untold)) == mixes


def test_the_training_of_another_model_is_not_its_own(model: TaskModel[Any, Any], tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    untold = copy.copy(model)
    untold.trained = None
    untold.save(folder)
    assert TaskModel.from_pretrained(folder, device="cpu").trained is None


def test_a_model_may_hold_its_encoder(model: TaskModel[Any, Any], tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model", with_encoder=True, encoder_source="wherever")
    assert Tagger.from_pretrained(folder, device="cpu").predict(TEXT) == model.predict(TEXT)


def test_a_bundled_encoder_is_named_not_located(model: TaskModel[Any, Any], tmp_path: Path) -> None:
    """Wherever the package is installed next time."""
    folder = model.save(tmp_path / "model", encoder_source=str(BUNDLED / "en"))
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["encoder"]["source"] == "en"


def test_a_fine_tuned_encoder_is_held(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    setup = small_setup(epochs=1, fine_tune=True, fine_tune_rate=0.01, max_train=30)
    tuned = train_task(NER, setup, train, dev, encoder=tiny_elmo(), device="cpu")
    loaded = Tagger.from_pretrained(tuned.save(tmp_path / "model"), device="cpu")
    assert loaded.predict(TEXT) == tuned.predict(TEXT)
    assert loaded.encoder is not None
    assert loaded.encoder.fingerprint != tiny_elmo().fingerprint


def test_a_held_encoder_is_written_with_the_rest_or_not_at_all(
    model: TaskModel[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model.save(tmp_path / "model", with_encoder=True)
    (folder / "encoder" / "README.md").write_text("my own words")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("elmokit.tasks.saved.write_weights", fail)
        for target in (folder, tmp_path / "other"):
            with pytest.raises(KeyboardInterrupt):
                model.save(target, with_encoder=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    stamps = {path: path.stat().st_mtime_ns for path in before}
    model.save(folder, with_encoder=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    written = {path.name for path in before if path.stat().st_mtime_ns != stamps[path]}
    assert written >= {"model.safetensors", "weights.safetensors", "config.json"}
    assert Tagger.from_pretrained(folder, device="cpu").predict(TEXT) == model.predict(TEXT)


def test_a_model_without_encoder(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    plain = train_task(NER, small_setup(epochs=1, elmo_at="none"), train, dev, device="cpu")
    loaded = Tagger.from_pretrained(plain.save(tmp_path / "model"), device="cpu")
    assert loaded.encoder is None
    assert loaded.predict(TEXT) == plain.predict(TEXT)


def test_damaged_folders_are_told(model: TaskModel[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model.save(tmp_path / "model")
    monkeypatch.setattr(Tagger, "task_class", "elmokit.tasks.tagging.task:Taglm")
    with pytest.raises(InputError, match=r"a model of the task 'ner', not for Tagger; use TaskModel"):
        Tagger.from_pretrained(folder)
    monkeypatch.undo()
    weights = folder / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(WeightsError, match=r"weights.safetensors: missing, or not the file that config.json"):
        Tagger.from_pretrained(folder)
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"config.json: not JSON .*; save the model again"):
        Tagger.from_pretrained(folder)
    (folder / "config.json").write_text('{"format": "elmokit"}', encoding="utf-8")
    with pytest.raises(WeightsError, match=r"not a task model"):
        Tagger.from_pretrained(folder)
    with pytest.raises(WeightsError, match=r"no task model, config.json is missing"):
        TaskModel.from_pretrained(tmp_path / "nothing")
