"""Saved task models: the same predictions, the same encoder and tokenizer or none."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_tasks import small_data, small_setup, tiny_elmo

import models
from elmokit import Tagger, TaskModel
from elmokit.encoders import Elmo
from elmokit.errors import InputError, WeightsError
from elmokit.tasks.run import train_task
from elmokit.tasks.saved import is_task_model
from elmokit.tasks.tagging.task import NER
from elmokit.weights import load_pretrained, save_pretrained
from elmokit.weights.load import BUNDLED

TEXT = "Ann sees the cat. New York sees Bob and New Delhi."


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(models.tiny().pretrained, tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Path) -> TaskModel[Any, Any]:
    train, dev = small_data(tmp_path_factory.mktemp("data"))
    elmo = Elmo.from_pretrained(encoder_folder, device="cpu")
    return train_task(NER, small_setup(epochs=3), train, dev, encoder=elmo, device="cpu")


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


def test_another_encoder_is_refused(model: TaskModel[Any, Any], tmp_path: Path, encoder_folder: Path) -> None:
    folder = model.save(tmp_path / "model")
    stated = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert stated["encoder"]["source"] == str(encoder_folder)
    assert stated["tokenizer"] == {"name": "english", "version": 1} | stated["tokenizer"]
    with pytest.raises(WeightsError, match=r"another encoder .fingerprint"):
        Tagger.from_pretrained(folder, encoder=tiny_elmo(seed=5))
    other_words = Elmo(load_pretrained(encoder_folder), device="cpu", tokenizer="unicode")
    with pytest.raises(WeightsError, match=r"tokenizer 'english' version 1, but the encoder given.*'unicode'"):
        Tagger.from_pretrained(folder, encoder=other_words)
    stated["encoder"]["source"] = str(tmp_path / "gone")
    (folder / "config.json").write_text(json.dumps(stated, indent=2), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"gone', which cannot be loaded .*say where that encoder is"):
        Tagger.from_pretrained(folder)
    assert Tagger.from_pretrained(folder, encoder=encoder_folder).predict(TEXT) == model.predict(TEXT)


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
    with pytest.raises(WeightsError, match=r"not the weights that config.json was written for"):
        Tagger.from_pretrained(folder)
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(WeightsError, match=r"not valid JSON"):
        Tagger.from_pretrained(folder)
    (folder / "config.json").write_text('{"format": "elmokit"}', encoding="utf-8")
    with pytest.raises(WeightsError, match=r"not a task model"):
        Tagger.from_pretrained(folder)
    with pytest.raises(WeightsError, match=r"no task model, config.json is missing"):
        TaskModel.from_pretrained(tmp_path / "nothing")
