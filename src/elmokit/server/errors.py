"""What goes wrong with a request, and how it is told: as OpenAI's error object, or as text-embeddings-inference's."""

from typing import Any

TEI_TYPES = {
    400: "validation",
    413: "validation",
    422: "validation",
    424: "backend",
    429: "overloaded",
    503: "unhealthy",
}


class ApiError(Exception):
    """An answer other than 200. `param` is the field that is wrong, `code` a word for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param, self.code = status, message, kind, param, code
        self.headers = headers or {}

    @property
    def openai(self) -> dict[str, Any]:
        """{"error": {"message", "type", "param", "code"}}"""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def tei(self) -> dict[str, Any]:
        """{"error", "error_type"}"""
        kind = "empty" if self.code == "empty_input" else TEI_TYPES.get(self.status, self.code or self.kind)
        return {"error": self.message, "error_type": kind}


class OverloadedError(ApiError):
    """The queue is full: 429 at once, and when to come again."""

    def __init__(self, why: str, seconds: int) -> None:
        super().__init__(
            429,
            f"{why}; come again in {seconds} seconds",
            kind="rate_limit_error",
            code="overloaded",
            headers={"retry-after": str(seconds)},
        )


class LateError(ApiError):
    """The request's time was over before its answer was there."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            504,
            f"no answer within {seconds:g} seconds; send fewer texts at once, or come again when there is less to do",
            kind="timeout_error",
            code="deadline_exceeded",
        )


class UnavailableError(ApiError):
    """The server cannot do it now: it is stopping, or its model thread has ended."""

    def __init__(self, why: str) -> None:
        super().__init__(503, why, kind="server_error", code="unavailable", headers={"retry-after": "1"})


class GoneError(ApiError):
    """The client has closed the connection. Nobody reads this answer; it stands in the log."""

    def __init__(self) -> None:
        super().__init__(499, "the client has closed the connection", kind="client_gone", code="client_gone")
