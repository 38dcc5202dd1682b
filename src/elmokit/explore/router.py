"""The explorer over HTTP: the page, and its calls.

A call answers with a line of JSON for each step, {"progress": [done, total, what]}, and a last line {"result": ...}
or {"error": ...}. A page that goes away stops the work after the step that runs.
"""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from elmokit.analysis.drift import Measure
from elmokit.errors import ElmokitError
from elmokit.explore.explorer import Explorer
from elmokit.explore.steps import Progress, Steps
from elmokit.server.bodies import SafeRoute
from elmokit.server.errors import ApiError
from elmokit.server.service import Service

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
STEP_SECONDS = 120.0  # that one step may wait and take
KEPT_BYTES, KEPT = 64 << 20, 64  # answers given again, for the back button
CHANGING = ("about", "run")  # which are asked for anew each time

Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(max_length=500)]
Names = Annotated[list[Name], Field(min_length=1, max_length=2)]
Limit = Annotated[int, Field(ge=1, le=20_000)]


class Body(BaseModel):
    """What a call is given."""

    model_config = ConfigDict(extra="forbid")


class SentenceBody(Body):
    texts: Annotated[list[Text], Field(min_length=1, max_length=2)]


class NearestBody(Body):
    index: Name
    text: Text
    position: Annotated[int, Field(ge=0)]


class BlankBody(Body):
    text: Text
    n: Annotated[int, Field(ge=1, le=50)] = 12


class WordsBody(Body):
    index: Name
    prefix: Name = ""


class UsesBody(Body):
    indexes: Names
    word: Name
    limit: Limit = 20_000


class WordBody(UsesBody):
    layers: Annotated[str, Field(pattern="^(own|some|all)$")] = "some"
    projection: Annotated[str, Field(pattern="^(pca|umap)$")] = "pca"


class GroupsBody(UsesBody):
    layer: Name | None = None
    clusters: Annotated[int, Field(ge=1, le=8)] | None = None


class SubstitutesBody(UsesBody):
    examples: Annotated[list[Annotated[list[int], Field(max_length=10)]], Field(max_length=8)]


class SimilarBody(UsesBody):
    number: int
    layer: Name | None = None


class ChangeBody(Body):
    first: Name
    second: Name
    by: Measure = "net"
    min_count: Annotated[int, Field(ge=2, le=1_000_000)] = 10


class AnswerBody(Body):
    task: Name
    text: Text
    second: Text = ""


class IndexBody(Body):
    index: Name


class RunBody(Body):
    name: Name


CALLS: Mapping[str, type[Body]] = {
    "about": Body,
    "sentence": SentenceBody,
    "nearest": NearestBody,
    "blank": BlankBody,
    "words": WordsBody,
    "word": WordBody,
    "groups": GroupsBody,
    "substitutes": SubstitutesBody,
    "similar": SimilarBody,
    "change": ChangeBody,
    "answer": AnswerBody,
    "layers": IndexBody,
    "run": RunBody,
}


class Done(NamedTuple):
    """The end of the steps."""

    value: Any


def explore_router(service: Service, explorer: Explorer) -> APIRouter:
    """The routes / and /explore/..."""
    router = APIRouter(route_class=SafeRoute, include_in_schema=False)
    page = {file.name: file.read_bytes() for file in (files("elmokit.explore") / "page").iterdir() if file.is_file()}
    kept = _Kept()

    @router.get("/")
    @router.get("/explore")
    async def begin() -> Response:
        return RedirectResponse("/explore/")

    @router.get("/explore/")
    async def whole() -> Response:
        return Response(page["index.html"], media_type="text/html", headers=HEADERS)

    @router.get("/explore/page/{name}")
    async def part(name: str) -> Response:
        if name not in page:
            raise ApiError(404, f"the page has no part {name!r}")
        return Response(page[name], media_type=TYPES[name.rpartition(".")[2]], headers=HEADERS)

    @router.post("/explore/api/{name}")
    async def answer(name: str, request: Request) -> Response:
        if name not in CALLS:
            raise ApiError(404, f"no call {name!r}; there are {', '.join(CALLS)}")
        try:
            body = CALLS[name].model_validate(await request.json())
        except ValidationError as wrong:
            first = wrong.errors()[0]
            raise ApiError(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        key = f"{name} {body.model_dump_json()}"
        if (known := kept.find(key)) is not None:
            return Response(known, media_type="application/x-ndjson", headers=HEADERS)
        try:
            steps = getattr(explorer, name)(**body.model_dump())
        except ElmokitError as wrong:
            raise ApiError(400, str(wrong)) from None
        lines = _lines(service, steps, None if name in CHANGING else partial(kept.keep, key))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=HEADERS)

    return router


async def _lines(service: Service, steps: Steps[Any], keep: Any) -> AsyncIterator[bytes]:
    """Runs the steps one by one: those that need the model in its thread, between the batches of other clients."""
    progress = Progress(0, 1)
    try:
        while True:
            lane: Any = "model" if progress.model else "side"
            came = await service.run(partial(_advance, steps), lane=lane, deadline=time.monotonic() + STEP_SECONDS)
            if isinstance(came, Done):
                break
            progress = came
            yield orjson.dumps({"progress": [progress.done, progress.total, progress.what]}) + b"\n"
        line = orjson.dumps({"result": came.value}, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS) + b"\n"
        if keep is not None:
            keep(line)
        yield line
    except (ApiError, ElmokitError) as wrong:
        yield orjson.dumps({"error": str(wrong)}) + b"\n"
    except Exception:  # without a last line the page would believe that the server is gone
        yield orjson.dumps({"error": "the server failed; its log says why"}) + b"\n"
        raise
    finally:
        with suppress(ValueError):  # a step still runs; it is the last one
            steps.close()


def _advance(steps: Steps[Any]) -> Progress | Done:
    try:
        return next(steps)
    except StopIteration as end:
        return Done(end.value)


class _Kept:
    """Answers by what was asked; used by one thread, that of the server's loop."""

    def __init__(self) -> None:
        self.lines: OrderedDict[str, bytes] = OrderedDict()

    def find(self, key: str) -> bytes | None:
        if key in self.lines:
            self.lines.move_to_end(key)
        return self.lines.get(key)

    def keep(self, key: str, line: bytes) -> None:
        self.lines[key] = line
        while len(self.lines) > 1 and (len(self.lines) > KEPT or sum(map(len, self.lines.values())) > KEPT_BYTES):
            self.lines.popitem(last=False)
