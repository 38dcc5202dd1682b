"""Requests' bodies: JSON within limits. Whatever is sent, the answer is a 400 that says what is wrong."""

from collections.abc import Callable
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from elmokit.server.errors import ApiError

DEEPEST = 16  # brackets inside brackets; nothing that we read has more than 4


class SafeRequest(Request):
    """A request whose JSON is valid UTF-8 without lone surrogates, and not too deep."""

    _json: Any

    async def json(self) -> Any:
        """The value that the route has parsed."""
        return self._json


class SafeRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        handle = super().get_route_handler()

        async def safely(request: Request) -> Response:
            safe = SafeRequest(request.scope, request.receive)
            if safe.method == "POST":  # here and not inside `handle`, which would hide what is wrong
                body = await safe.body()
                if "json" in safe.headers.get("content-type", "json"):
                    safe._json = parse(body)
            response: Response = await handle(safe)
            return response

        return safely


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
