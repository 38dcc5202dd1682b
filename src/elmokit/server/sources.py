"""What the flags of a server name: encoders, task models and indexes, each under a name."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from elmokit.encoders import Encoder, load_encoder
from elmokit.errors import ElmokitError, InputError
from elmokit.index import Index
from elmokit.tasks.saved import TaskModel, read_description
from elmokit.weights.bundled import find_task_model, list_bundled


def named(given: str | None) -> tuple[str, str | None]:
    """A name to serve it under, and its source: NAME=SOURCE, or the last part of the source."""
    if given is None:
        return "en", None
    name, equals, source = given.partition("=")
    if equals and "/" not in name:
        return name, source
    return Path(given.partition(":")[2] or given).name or given, given


def all_named(given: Iterable[str | None], what: str) -> dict[str, str | None]:
    """Sources by their names, no two of which may be the same."""
    found: dict[str, str | None] = {}
    for name, source in map(named, given):
        if name in found:
            raise InputError(f"two {what} are named {name!r}; give them as NAME=SOURCE")
        found[name] = source
    return found


def load_task_model(source: str, known: Mapping[str, Encoder], device: str) -> TaskModel[Any, Any]:
    """A task model by its folder or name, on an encoder that is loaded already if it was trained on that.

    `known` are encoders by their fingerprints.
    """
    folder = find_task_model(source)
    stated = read_description(folder).encoder
    encoder = known.get(stated.fingerprint) if stated is not None and not stated.held else None
    return TaskModel.from_pretrained(folder, encoder=encoder, device=device)


def ready_tasks() -> dict[str, Path]:
    """The folders of the task models that come with elmokit, by name."""
    return {one.name: one.folder for one in list_bundled() if one.kind != "model"}


def load_indexed(index: Index, device: str) -> Encoder:
    """The encoder that an index was made with, if it is on this machine."""
    try:
        encoder = load_encoder(index.manifest.model_place, device=device, local_files_only=True)
    except ElmokitError as wrong:
        raise InputError(f"{index.folder}: its model cannot be loaded ({wrong}); give it with -m") from None
    index.manifest.check_encoder(encoder, index.folder)
    return encoder
