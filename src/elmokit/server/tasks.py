"""/v1/tasks: taggers, classifiers and the other task models."""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from elmokit.server.bodies import SafeRoute
from elmokit.server.errors import ApiError
from elmokit.server.jobs import leave_if_cancelled
from elmokit.server.schemas import ERRORS, example
from elmokit.server.service import Service
from elmokit.server.wire import to_json
from elmokit.tasks.saved import TaskModel


class TaskRequest(BaseModel):
    """Texts; for tasks about two texts (entailment, questions) pairs of them."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=example(input=["Jane lives in Paris."]))

    input: str | list[str] | list[list[str]] = Field(description="One text, a list of texts, or a list of pairs.")


class TaskAnswer(BaseModel):
    """For each input a list of records, one per sentence for most tasks; as `elmokit apply --json` prints them."""

    id: str
    task: str
    data: list[list[dict[str, Any]]]


class TaskObject(BaseModel):
    """A task model that the server has; `pairs`: it takes pairs of texts."""

    id: str
    task: str
    pairs: bool


class TasksAnswer(BaseModel):
    """All of them."""

    data: list[TaskObject]


def tasks_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=SafeRoute, tags=["elmokit"])

    @router.get("/v1/tasks", responses={200: {"model": TasksAnswer}, 401: ERRORS[401]}, summary="The task models")
    async def tasks() -> Response:
        """What may be given as name."""
        return to_json(
            {"data": [{"id": n, "task": m.task.name, "pairs": m.task.pairs} for n, m in service.tasks.items()]}
        )

    @router.post("/v1/tasks/{name}", responses={200: {"model": TaskAnswer}, **ERRORS}, summary="A task model")
    async def apply(name: str, body: TaskRequest) -> Response:
        """What the model finds in the texts; places are character offsets into them."""
        model = service.task(name)
        given = _given(model, body)
        flat = [text for one in given for text in ([one] if isinstance(one, str) else one)]
        tokens = sum(len(sentence) + 2 for sentence in await service.cut(flat, tokenizer=model.tokenizer))
        found = await service.run(lambda: apply_task(model, given), tokens=tokens)
        return to_json({"id": name, "task": model.task.name, "data": found})

    return router


def apply_task(model: TaskModel[Any, Any], given: list[Any]) -> list[list[dict[str, Any]]]:
    """The records of each input."""
    parts = [model.task.examples(one, model.tokenizer) for one in given]
    examples = [example for part in parts for example in part]
    found = iter(model.predict_examples(examples, told=leave_if_cancelled))
    return [[model.task.record(example, next(found)) for example in part] for part in parts]


def _given(model: TaskModel[Any, Any], body: TaskRequest) -> list[Any]:
    given: list[Any] = [body.input] if isinstance(body.input, str) else list(body.input)
    if not given:
        raise ApiError(400, "'input' is an empty list; expected at least one text", param="input")
    wanted = "a pair of texts" if model.task.pairs else "a text"
    for number, one in enumerate(given):
        if isinstance(one, str) == model.task.pairs or (isinstance(one, list) and len(one) != 2):
            raise ApiError(
                400, f"input {number} is not {wanted}, which the task {model.task.name} takes", param="input"
            )
    return [tuple(one) if isinstance(one, list) else one for one in given]
