"""Task models that come with the package are offered with nothing configured, and loaded when they are used."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_models import make_task_models
from starlette.testclient import TestClient

from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.explore import Explorer, prepare
from elmokit.explore.steps import finish
from elmokit.index import Index
from elmokit.tasks.saved import TaskModel
from elmokit.weights.load import BUNDLED


@pytest.fixture(scope="module")
def place(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the package's folder of models, with small task models in it."""
    place = tmp_path_factory.mktemp("models")
    (place / "tasks").mkdir()
    make_task_models(place / "tasks", elmo)
    shutil.copytree(BUNDLED / "en", place / "en")
    return place


def ask(client: TestClient, name: str, **body: Any) -> Any:
    lines = client.post(f"/explore/api/{name}", json=body).text.splitlines()
    return json.loads(lines[-1])["result"]


def test_an_index_whose_model_is_gone_takes_no_other(elmo: Elmo, tmp_path: Path) -> None:
    elmo.save_pretrained(tmp_path / "model")
    Index.build(Elmo.from_pretrained(tmp_path / "model"), [["one", "word"]], tmp_path / "index")
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(InputError, match=r"made with the model .*model', which is not there; say with -m"):
        prepare([tmp_path / "index"])


def test_they_are_offered_and_load_when_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = TaskModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def noted(cls: Any, folder: Any, **options: Any) -> Any:
        loaded.append(Path(folder).name)
        return load(cls, folder, **options)

    monkeypatch.setattr("elmokit.weights.bundled.BUNDLED", place)
    monkeypatch.setattr(TaskModel, "from_pretrained", classmethod(noted))
    app, service, bound, _ = prepare(device="cpu")
    try:
        with TestClient(app, base_url="http://127.0.0.1") as client:
            told = {one["name"]: one for one in ask(client, "about")["tasks"]}
            assert set(told) == {"classify", "coref", "entail", "ner", "qa", "roles"}
            assert loaded == []
            assert told["qa"]["pairs"]
            assert told["ner"]["mixes"][0]["layers"] == ["token", "lstm1", "lstm2"]
            found = ask(client, "answer", task="ner", text="Ann sees New York.")
            assert found["form"] == told["ner"]["form"] == "spans"
            assert found["records"][0]["spans"][0] | {"type": "PER"} == found["records"][0]["spans"][0]
            ask(client, "answer", task="ner", text="Bob sees Ann.")
            assert loaded == ["ner"]
            assert {one["name"] for one in ask(client, "about")["tasks"]} == set(told)
    finally:
        service.close()
        bound.close()


def test_what_a_folder_says_is_what_the_model_says(place: Path, elmo: Elmo) -> None:
    folders = {path.name: path for path in (place / "tasks").iterdir() if path.is_dir()}
    models = {name: TaskModel.from_pretrained(folder, encoder=elmo) for name, folder in folders.items()}
    lazy = finish(Explorer(elmo, ready=folders).about())["tasks"]
    eager = finish(Explorer(elmo, tasks=models, ready=folders).about())["tasks"]
    assert [one["name"] for one in lazy] == ["ner", "classify", "entail", "qa", "roles", "coref"]  # names first
    for one in eager:
        assert {**one, "source": ""} in [{**other, "source": ""} for other in lazy]
    assert {one["source"] for one in lazy} == set(folders)  # by name, for the lines of code
