"""Routes for those who run the server: /health, /ready, /ping, /metrics."""

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from elmokit.server.errors import UnavailableError
from elmokit.server.metrics import Metrics
from elmokit.server.schemas import ERRORS
from elmokit.server.service import Service
from elmokit.server.wire import to_json

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
UNHEALTHY: dict[int | str, dict[str, Any]] = {503: ERRORS[503]}


class Status(BaseModel):
    """ok."""

    status: str


def operations_router(service: Service, metrics: Metrics) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["Operations"])

    async def health() -> Response:
        """Fails when the model thread is dead or stuck."""
        if (problem := service.problem) is not None:
            raise UnavailableError(problem)
        return to_json({"status": "ok"})

    for path in ("/health", "/ping"):
        router.get(path, responses={200: {"model": Status}, **UNHEALTHY}, summary="Whether it works")(health)

    @router.get("/ready", responses={200: {"model": Status}, **UNHEALTHY}, summary="Whether to send requests")
    async def ready() -> Response:
        """Fails before warm-up and while the server is stopping."""
        if not service.ready:
            raise UnavailableError("the server is stopping" if service.stopping else "the server is warming up")
        return to_json({"status": "ready"})

    content = {"text/plain": {"schema": {"type": "string"}}}

    @router.get("/metrics", responses={200: {"content": content}}, response_class=Response, summary="For Prometheus")
    async def read_metrics() -> Response:
        """Prometheus's text format."""
        return Response(metrics.text(), headers={"content-type": PROMETHEUS})

    return router
