"""Damaged files of task models: an error that names the file, never another exception, never other numbers."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_tasks import small_data, small_setup, tiny_elmo

from elmokit import Elmo, TaskModel
from elmokit.errors import ElmokitError, WeightsError
from elmokit.tasks.run import train_task
from elmokit.tasks.tagging.task import NER

OLD = Path(__file__).parents[1] / "data" / "v0.1.0"  # without checksums, so that each field is looked at by itself
OTHERS = (None, True, -1, 0.5, 3, 10**9, 10**30, float("nan"), "x", "", [], [3], {}, {"x": 3})
TRIED = 150
TEXT = "Ann sees the cat."
GIVEN = {"qa": (TEXT, "Who sees it?"), "roles": "Ann *sees* the cat."}


@pytest.fixture(scope="module")
def old_encoders() -> dict[str, Elmo]:
    """By fingerprint."""
    models = [Elmo.from_pretrained(OLD / "models" / name, device="cpu") for name in ("float32", "int8")]
    return {model.fingerprint: model for model in models}


def changes(values: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The same with one part left out or another in its place, for each part; and what was done."""
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in items:
        here = f"{where}.{key}"
        if isinstance(values, dict):
            kept = {k: v for k, v in values.items() if k != key}
        else:
            kept = [v for k, v in enumerate(values) if k != key]
        yield f"without {here}", kept
        for other in OTHERS:
            if isinstance(values, dict):
                yield f"{here} = {other}", {**values, key: other}
            else:
                yield f"{here} = {other}", [*values[:key], other, *values[key + 1 :]]
        for what, changed in changes(value, here):
            if isinstance(values, dict):
                yield what, {**values, key: changed}
            else:
                yield what, [*values[:key], changed, *values[key + 1 :]]


@pytest.mark.parametrize("name", ["ner", "classify", "qa", "roles", "coref"])
@pytest.mark.parametrize("file", ["config.json", "training.json"])
def test_any_change_of_a_description_is_an_error_or_harmless(
    name: str, file: str, tmp_path: Path, old_encoders: dict[str, Elmo], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(OLD)
    folder = Path(shutil.copytree(OLD / "tasks" / name, tmp_path / "model"))
    whole = json.loads((folder / file).read_text(encoding="utf-8"))
    used = json.loads((folder / "config.json").read_text(encoding="utf-8"))["encoder"]
    encoder = None if used is None else old_encoders.get(used["fingerprint"])
    if file == "training.json":
        whole = whole[:2]
    refused, wrong = 0, []
    for what, changed in random.Random(name).sample(list(changes(whole)), TRIED):
        (folder / file).write_text(json.dumps(changed), encoding="utf-8")
        try:
            model: TaskModel[Any, Any] = TaskModel.from_pretrained(folder, encoder=encoder, device="cpu")
            model.predict(GIVEN.get(name, TEXT))
        except ElmokitError:
            refused += 1
        except Exception as error:
            wrong.append(f"{what}: {type(error).__name__}: {error}")
    assert not wrong
    assert refused > TRIED / 2


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train, dev = small_data(tmp_path_factory.mktemp("data"))
    model = train_task(NER, small_setup(epochs=2), train, dev, encoder=tiny_elmo(), device="cpu")
    return model.save(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("file", ["config.json", "weights.safetensors", "words.txt", "training.json"])
def test_a_flipped_bit_anywhere_is_noticed(saved: Path, tmp_path: Path, file: str) -> None:
    folder, encoder = Path(shutil.copytree(saved, tmp_path / "model")), tiny_elmo()
    whole, rng = (folder / file).read_bytes(), random.Random(file)
    for at in sorted(rng.sample(range(len(whole)), min(40, len(whole)))):
        (folder / file).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        with pytest.raises(WeightsError, match=str(folder)):
            TaskModel.from_pretrained(folder, encoder=encoder, device="cpu")
    for cut in (b"", whole[: len(whole) // 2], whole[:-2], whole + b" x"):
        (folder / file).write_bytes(cut)
        with pytest.raises(WeightsError, match=str(folder)):
            TaskModel.from_pretrained(folder, encoder=encoder, device="cpu")
    (folder / file).unlink()
    with pytest.raises(WeightsError, match=str(folder)):
        TaskModel.from_pretrained(folder, encoder=encoder, device="cpu")


def test_a_description_may_be_edited_without_its_checksum(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    content["encoder"]["source"] = "elsewhere"
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WeightsError, match=r"its checksum does not fit.*remove the field 'checksum'"):
        TaskModel.from_pretrained(folder, encoder=tiny_elmo(), device="cpu")
    del content["checksum"]
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    TaskModel.from_pretrained(folder, encoder=tiny_elmo(), device="cpu")


def test_words_that_do_not_fit_are_refused(tmp_path: Path, old_encoders: dict[str, Elmo]) -> None:
    """Models of 0.1.0 have no checksum of their words."""
    folder = Path(shutil.copytree(OLD / "tasks" / "ner", tmp_path / "model"))
    words = (folder / "words.txt").read_text(encoding="utf-8").splitlines()
    for changed in (words[1:], [*words, "another"], [words[1], *words[1:]]):
        (folder / "words.txt").write_text("\n".join(changed) + "\n", encoding="utf-8")
        with pytest.raises(WeightsError, match=r"words\.txt: .* but config\.json describes"):
            TaskModel.from_pretrained(folder, encoder=next(iter(old_encoders.values())), device="cpu")


@pytest.mark.skipif(os.name == "nt", reason="no file modes there")
def test_a_model_is_readable_as_the_umask_says(tmp_path: Path) -> None:
    train, dev = small_data(tmp_path)
    model = train_task(NER, small_setup(epochs=1, elmo_at="none"), train, dev, device="cpu")
    before = os.umask(0o027)
    try:
        folder = model.save(tmp_path / "model")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}
