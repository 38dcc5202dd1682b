"""What the Tasks view shows: a task model's answer to a text, as one of a few forms that the page draws."""

from typing import Any

from elmokit.errors import InputError
from elmokit.explore.steps import Progress, Steps
from elmokit.tasks.saved import TaskModel

MOST_CHARACTERS = 20_000
FORMS = {  # by the network's family
    "Tagging": "spans",
    "Classification": "classes",
    "PairClassification": "classes",
    "QuestionAnswering": "answer",
    "SemanticRoles": "roles",
    "Coreference": "clusters",
}


def form_of(model: TaskModel[Any, Any]) -> str:
    """How the page draws the answers: spans, classes, answer, roles or clusters."""
    families = (FORMS.get(kind.__name__) for kind in type(model.task).__mro__)
    return next((form for form in families if form), "records")


def describe_task(name: str, model: TaskModel[Any, Any]) -> dict[str, Any]:
    """A task model in facts: what it does, what it takes, what its mixes became."""
    encoder = model.encoder
    mixes = [
        {
            "place": place,
            "shares": list(mix["shares"]),
            "gamma": mix["gamma"],
            "layers": _named(len(mix["shares"]), () if encoder is None else encoder.layer_names),
        }
        for place, mix in model.mixes.items()
    ]
    return {
        "name": name,
        "task": model.task.name,
        "help": model.task.help,
        "form": form_of(model),
        "pairs": model.task.pairs,
        "source": model.source,
        "encoder": None if encoder is None else encoder.source,
        "mixes": mixes,
        "scores": dict(model.trained.best.scores) if model.trained else {},
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
    return {"form": form_of(model), "text": text, "second": second, "records": records}


def _named(count: int, names: tuple[str, ...]) -> list[str]:
    return list(names) if len(names) == count else [f"layer {k}" for k in range(count)]
