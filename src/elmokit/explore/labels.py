"""What the Tasks view shows: a task model's answer to a text, as one of a few forms that the page draws."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmokit.errors import InputError
from elmokit.explore.steps import Progress, Steps
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.saved import TaskModel, read_description
from elmokit.tasks.task import Task

MOST_CHARACTERS = 20_000
FORMS = {  # by the network's family
    "Tagging": "spans",
    "Classification": "classes",
    "PairClassification": "classes",
    "QuestionAnswering": "answer",
    "SemanticRoles": "roles",
    "Coreference": "clusters",
}


def form_of(task: Task[Any, Any]) -> str:
    """How the page draws the answers: spans, classes, answer, roles or clusters."""
    families = (FORMS.get(kind.__name__) for kind in type(task).__mro__)
    return next((form for form in families if form), "records")


def describe_task(name: str, model: TaskModel[Any, Any]) -> dict[str, Any]:
    """A task model in facts: what it does, what it takes, what its mixes became."""
    layers = () if model.encoder is None else model.encoder.layer_names
    mixes = [(place, tuple(mix["shares"]), mix["gamma"]) for place, mix in model.mixes.items()]
    return _facts(name, model.task, model.source, layers, mixes)


def describe_saved(name: str, folder: Path) -> dict[str, Any]:
    """The same of a model that comes with elmokit, by what its folder says: its weights are not read."""
    stated = read_description(folder)
    layers = () if stated.encoder is None else stated.encoder.layers
    mixes = [(place, mix.shares, mix.gamma) for place, mix in stated.mixes.items()]
    return _facts(name, load_task(stated.task), name, layers, mixes)


def _facts(
    name: str,
    task: Task[Any, Any],
    source: str,
    layers: tuple[str, ...],
    mixes: Sequence[tuple[str, tuple[float, ...], float]],
) -> dict[str, Any]:
    return {
        "name": name,
        "task": task.name,
        "help": task.help,
        "form": form_of(task),
        "pairs": task.pairs,
        "source": source,
        "mixes": [
            {"place": place, "shares": list(shares), "gamma": gamma, "layers": _named(len(shares), layers)}
            for place, shares, gamma in mixes
        ],
    }


def answer(model: TaskModel[Any, Any], text: str, second: str = "") -> Steps[dict[str, Any]]:
    """The records of a text, or of two where the task takes pairs; offsets lead into `text`."""
    if not text.strip():
        raise InputError("no text was given; expected a sentence or more")
    if model.task.pairs and not second.strip():
        raise InputError("this task takes two texts, and the second is empty; fill in both")
    if len(text) + len(second) > MOST_CHARACTERS:
        raise InputError(f"{len(text) + len(second):,} characters were given; expected {MOST_CHARACTERS:,} at most")
    yield Progress(0, 1, model=True)
    given = (text, second) if model.task.pairs else text
    examples = model.task.examples(given, model.tokenizer)
    found = model.predict_examples(examples)
    records = [model.task.record(example, one) for example, one in zip(examples, found, strict=True)]
    return {"form": form_of(model.task), "text": text, "second": second, "records": records}


def _named(count: int, names: tuple[str, ...]) -> list[str]:
    return list(names) if len(names) == count else [f"layer {k}" for k in range(count)]
