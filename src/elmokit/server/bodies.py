"""Requests' bodies: JSON within limits. Whatever is sent, the answer is a 400 that says what is wrong."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from elmokit.server.errors import ApiError

DEEPEST = 16  # brackets inside brackets; nothing that we read has more than 4


class SafeRequest(Request):
    """A request whose JSON is valid UTF-8 without lone surrogates, and not too deep."""

    _json: Any

    async def json(self) -> Any:
        """The value that the route has parsed."""
        return self._json


class SafeRoute(APIRoute):
    """A route that reads its body so.

    An endpoint that takes nothing else is called with it, past FastAPI's own reading, unless it is wrong.
    """

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle, kind = super().get_route_handler(), only_body(self.endpoint)

        async def safely(request: Request) -> Response:
            safe, given = SafeRequest(request.scope, request.receive), None
            if safe.method == "POST":  # here and not inside `handle`, which would hide what is wrong
                body = await safe.body()
                stated = safe.headers.get("content-type", "json").lower()
                if "json" in stated:
                    safe._json = parse(body)
                if kind is not None and stated.startswith("application/json"):
                    with suppress(ValidationError):  # then `handle` says what is wrong
                        given = kind.model_validate(safe._json)
            response: Response = await (handle(safe) if given is None else self.endpoint(given))
            return response

        return safely


def only_body(endpoint: Callable[..., Any]) -> type[BaseModel] | None:
    """What an endpoint takes, if that is nothing but a body, and it makes its `Response` itself."""
    told = inspect.signature(endpoint)
    kinds = [parameter.annotation for parameter in told.parameters.values()]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return kinds[0] if told.return_annotation is Response and inspect.iscoroutinefunction(endpoint) else None
    return None


def parse(body: bytes) -> Any:
    """The value, or an `ApiError`."""
    if not body:
        raise ApiError(400, "the body is empty; expected JSON", code="invalid_json")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as wrong:
        raise ApiError(400, f"the body is not JSON in UTF-8: {wrong}", code="invalid_json") from None
    if too_deep(value):
        raise ApiError(400, f"the JSON has more than {DEEPEST} brackets inside brackets", code="invalid_json")
    return value


def too_deep(value: Any) -> bool:
    """Whether brackets stand inside brackets beyond the limit."""
    level = [value]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for held in level:
            parts = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
            inner += [part for part in parts if isinstance(part, dict | list)]
        if not inner:
            return False
        level = inner
    return True
