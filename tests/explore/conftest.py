"""The bundled model, and indexes of real text: the sample of the package, in two parts, and an empty one."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_models import make_task_models
from visits import ARGUMENTS, Server, Visit

from elmokit.encoders import Elmo
from elmokit.explore import Explorer
from elmokit.index import Index, IndexSettings

SAMPLE = Path(__file__).resolve().parents[2] / "src" / "elmokit" / "cli" / "sample.txt"


@pytest.fixture(scope="session")
def elmo() -> Elmo:
    return Elmo.from_pretrained()


@pytest.fixture(scope="session")
def indexes(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders: `whole` (two texts, with fields), `first` and `second` (its halves), `layered` (all layers), `empty`."""
    folder = tmp_path_factory.mktemp("indexes")
    lines = [line for line in SAMPLE.read_text(encoding="utf-8").splitlines() if line.strip()]
    halves = {"first": lines[::2], "second": lines[1::2]}
    split = {name: [s for line in some for s in elmo.tokenizer.split(line)] for name, some in halves.items()}
    keep = IndexSettings(keep=("half", "line"))
    for name, sentences in split.items():
        Index.build(elmo, sentences, folder / name, name=f"{name}.txt (0)")
        fielded = [replace(sentence, fields=(name, str(k))) for k, sentence in enumerate(sentences)]
        Index.build(elmo, fielded, folder / "whole", name=f"{name}.txt (0)", settings=keep)
    concat = IndexSettings(layers="concat:0..2")
    Index.build(elmo, split["first"], folder / "layered", settings=concat, name="first.txt (0)")
    Index.begin(elmo, folder / "empty")
    return {name: folder / name for name in ("whole", "first", "second", "layered", "empty")}


@pytest.fixture(scope="session")
def explorer(elmo: Elmo, indexes: dict[str, Path]) -> Explorer:
    return Explorer(elmo, indexes={name: Index.open(folder) for name, folder in indexes.items()})


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of the system; for one module, since Playwright keeps an event loop running."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("no chromium on this machine")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def given(
    browser: Any, elmo: Elmo, indexes: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the server is started with besides indexes: task models, a run that goes on, probes."""
    folder = tmp_path_factory.mktemp("given")
    run = folder / "run"
    run.mkdir()
    lines = [{"step": k, "time": k, "loss": 8 - k / 10, "learning_rate": 0.1} for k in range(1, 20)]
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    record = {"encoder": "en", "label": "upos", "view": "0 token", "accuracy": 0.9, "control": 0.7}
    (folder / "probe.json").write_text(json.dumps([record, {**record, "view": "1 lstm1"}]), encoding="utf-8")
    return {"tasks": make_task_models(folder, elmo), "run": run, "probe": folder / "probe.json"}


@pytest.fixture(scope="module")
def server(indexes: dict[str, Path], given: dict[str, Any]) -> Iterator[Server]:
    tasks = [argument for folder in given["tasks"] for argument in ("--task", folder)]
    folders = [indexes[name] for name in ("whole", "first", "second", "empty")]
    started = Server(*folders, *tasks, "--run", given["run"], "--probe", given["probe"])
    yield started
    assert started.stop() == 0


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Visit]:
    """A visit that must leave no error behind."""
    made = Visit(browser, server.address)
    yield made
    made.context.close()
    assert made.wrong == []
