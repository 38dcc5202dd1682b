"""A small model, and servers that end with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Process, Running
from world import World, make_world

import models
from elmokit import Elmo
from elmokit.server import ServerSettings, Service
from elmokit.weights import save_pretrained


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pretrained(models.tiny().pretrained, tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(scope="session")
def encoder(model_folder: Path) -> Elmo:
    return Elmo.from_pretrained(model_folder)


@pytest.fixture
def start(encoder: Elmo) -> Iterator[Callable[..., Running]]:
    """Starts servers; they end with the test."""
    running: list[Running] = []

    def begin(*, settings: ServerSettings | None = None, **options: Any) -> Running:
        service = Service({"tiny": encoder}, settings=settings or ServerSettings())
        running.append(Running(service, **{"log": None, **options}))
        return running[-1]

    yield begin
    for server in running:
        server.close()


@pytest.fixture(scope="module")
def server(encoder: Elmo) -> Iterator[Running]:
    """One server for the tests of a module."""
    running = Running(Service({"tiny": encoder}), log=None)
    yield running
    running.close()


@pytest.fixture
def process(model_folder: Path, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts `elmokit serve` processes; none outlives the test."""
    started: list[Process] = []

    def begin(*args: object, **variables: str) -> Process:
        started.append(Process(tmp_path / f"log{len(started)}", "-m", model_folder, *args, **variables))
        return started[-1]

    yield begin
    for one in started:
        one.kill()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def full(world: World) -> Iterator[Running]:
    """A server with a language model, a task model and two indexes."""
    settings = ServerSettings(task=(str(world.tagger),), index=(f"before={world.old}", str(world.new)))
    running = Running(Service.load(settings, model=[str(world.model)]), log=None)
    yield running
    running.close()
