"""`create_app`: the HTTP surface over a `Service`."""

import sys
from collections.abc import Sequence
from typing import Any, TextIO

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from elmokit import __version__
from elmokit.errors import InputError
from elmokit.server.corpora import corpora_router
from elmokit.server.docs import docs_router
from elmokit.server.errors import ApiError
from elmokit.server.front import TEI_PATHS, Front
from elmokit.server.metrics import Metrics
from elmokit.server.openai import openai_router
from elmokit.server.operations import operations_router
from elmokit.server.service import Service
from elmokit.server.tasks import tasks_router
from elmokit.server.tei import tei_router
from elmokit.server.tokens import tokens_router
from elmokit.server.wire import to_json
from elmokit.server.words import words_router

DESCRIPTION = (
    "Vectors of sentences and words from ELMo and other encoders, with the surfaces of OpenAI and "
    "text-embeddings-inference beside elmokit's own."
)


def create_app(service: Service, *, routers: Sequence[APIRouter] = (), log: TextIO | None = sys.stderr) -> FastAPI:
    """The application. `routers` come first, so that they may take paths such as / for themselves.

    Their handlers use `service.encode`, `service.run` and `service.cached`; an `ApiError` or `InputError` that they
    raise becomes the error object. Keys, limits, deadlines, log and metrics hold for them as for all routes.
    `log` gets a line per request; None: no lines.
    """
    app = FastAPI(title="elmokit", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    metrics = Metrics(service)
    own = (openai_router, tokens_router, words_router, tasks_router, corpora_router, tei_router)
    for router in (*routers, *(make(service) for make in own), operations_router(service, metrics)):
        app.include_router(router)  # in this order they are looked through: the busiest first
    app.include_router(docs_router(app))
    _handle_errors(app)
    app.add_middleware(Front, service=service, metrics=metrics, log=log)
    if service.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors),
            allow_methods=["GET", "POST", "OPTIONS"],
            allow_headers=["Authorization", "Content-Type", "X-Api-Key", "X-Request-Id", "X-Request-Timeout"],
            expose_headers=["X-Request-Id", "Retry-After", "X-Queue-Time", "X-Inference-Time", "X-Total-Time"],
        )
    app.state.service, app.state.metrics = service, metrics
    return app


def _handle_errors(app: FastAPI) -> None:
    def answer(request: Request, error: ApiError) -> Response:
        tei = request.url.path in TEI_PATHS
        return to_json(error.tei if tei else error.openai, status=error.status, headers=error.headers)

    async def api(request: Request, error: Any) -> Response:
        return answer(request, error)

    async def given(request: Request, error: Any) -> Response:
        return answer(request, ApiError(400, str(error)))

    async def invalid(request: Request, error: Any) -> Response:
        wrong = _explain(error)
        if request.url.path in TEI_PATHS:
            wrong.status = 422  # as there
        return answer(request, wrong)

    async def http(request: Request, error: Any) -> Response:
        path = request.url.path
        told = {
            404: f"no such path: {path}; /docs lists them",
            405: f"{request.method} is not for {path}; /docs lists what is",
        }
        message = told.get(error.status_code, str(error.detail))
        return answer(request, ApiError(error.status_code, message, headers=dict(error.headers or {})))

    app.add_exception_handler(ApiError, api)
    app.add_exception_handler(InputError, given)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)


def _explain(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong, in one line."""
    wrong = error.errors()[0]
    place = [str(part) for part in wrong["loc"] if part != "body"]
    if not place:
        message = (
            f"the body is not what was expected: {wrong['msg']}; send a JSON object, Content-Type: application/json"
        )
        return ApiError(400, message)
    if wrong["type"] == "extra_forbidden":
        return ApiError(400, f"{place[0]}: there is no such field; /docs lists them", param=place[0])
    return ApiError(400, f"{'.'.join(place)}: {wrong['msg']}", param=place[0])
