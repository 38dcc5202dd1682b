"""Fields that several routes have, and the errors that all of them may answer with."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

Layers = Annotated[
    Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=-1000, le=1000)],
    Field(description="Which layers: all, top, 0, average, concat:1,2, weights:.2,.3,.5 and so on."),
]
ModelName = Annotated[str | None, Field(None, description="A name out of /v1/models; default: the first.")]
TokenLists = list[list[str]]


class ErrorDetail(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """OpenAI's error object."""

    error: ErrorDetail


class TeiError(BaseModel):
    """text-embeddings-inference's error."""

    error: str
    error_type: str


MEANINGS = {
    400: "The request is not understood.",
    401: "No valid key.",
    404: "No such model, task or index.",
    408: "The body has not come before the deadline.",
    413: "Too much: a body, a text or a list over the limit.",
    429: "The queue is full; Retry-After says when to come again.",
    500: "The server failed.",
    503: "The server is stopping, or its model thread has ended.",
    504: "No answer before the deadline.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": told} for status, told in MEANINGS.items()
}


def example(**values: Any) -> dict[str, Any]:
    """For OpenAPI."""
    return {"examples": [values]}
