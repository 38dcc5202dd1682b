"""OpenAI's surface: POST /v1/embeddings (also /embeddings), GET /v1/models."""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from elmokit.server.bodies import SafeRoute
from elmokit.server.embedding import Pooling
from elmokit.server.errors import ApiError
from elmokit.server.schemas import ERRORS, Layers, ModelName, TokenLists, example
from elmokit.server.service import Service
from elmokit.server.wire import as_float32, to_base64, to_json

TOKEN_IDS = (
    "token ids were sent, which this model does not have: it reads text. Turn them off in the client "
    "(langchain: OpenAIEmbeddings(check_embedding_ctx_length=False)), or send words in 'tokens'"
)


class EmbeddingsRequest(BaseModel):
    """OpenAI's fields, and our own: tokens, layers, pooling, normalize."""

    model_config = ConfigDict(strict=True, json_schema_extra=example(model="en", input=["A sentence.", "Another."]))

    input: str | list[str] | list[int] | list[list[int]] | None = Field(
        None, description="One text, or a list of 1 to 2,048 texts."
    )
    tokens: TokenLists | None = Field(None, description="Texts that are cut into words already, instead of input.")
    model: ModelName = None
    encoding_format: Literal["float", "base64"] = Field("float", description="base64: little-endian float32.")
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Refused unless it is the size that the vectors have."
    )
    user: str | None = Field(None, description="Taken and left unused.")
    layers: Layers = "average"
    pooling: Literal["mean", "max", "first", "last"] = Field("mean", description="From word vectors to one vector.")
    normalize: bool = Field(True, description="Vectors of length 1.")


class EmbeddingObject(BaseModel):
    """One text's vector; base64 text if that was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Words, as the model's tokenizer counts them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """OpenAI's list of embeddings."""

    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: Usage
    shape: list[int] | None = Field(None, description="Of a vector with layers all, which come one after the other.")


class ModelObject(BaseModel):
    """A model that the server has."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsAnswer(BaseModel):
    """OpenAI's list of models."""

    object: Literal["list"]
    data: list[ModelObject]


def texts_of(body: Any) -> list[Any]:
    """The texts, or token lists, of a request."""
    if (body.input is None) == (body.tokens is None):
        raise ApiError(400, "send either 'input' (text) or 'tokens' (lists of words)", param="input")
    if body.tokens is not None:
        given: list[Any] = body.tokens
    else:
        given = [body.input] if isinstance(body.input, str) else list(body.input or [])
    if not given:
        raise ApiError(400, "'input' is an empty list; expected at least one text", param="input", code="empty_input")
    if not isinstance(given[0], str) and body.tokens is None:
        raise ApiError(400, TOKEN_IDS, param="input", code="token_ids_not_supported")
    return given


def openai_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=SafeRoute, tags=["OpenAI"])
    started = int(time.time())

    async def embeddings(body: EmbeddingsRequest) -> Response:
        """One vector per text."""
        name = service.model_name(body.model)
        pooling: Pooling = body.pooling
        texts = texts_of(body)
        found = await service.encode(texts, model=name, layers=body.layers, pooling=pooling, normalise=body.normalize)
        size = found.vectors[0].size
        if body.dimensions not in (None, size):
            raise ApiError(
                400,
                f"dimensions is {body.dimensions}, but the vectors of {name} with layers {body.layers} have "
                f"{size}, and a part of one is not a shorter embedding; leave dimensions out",
                param="dimensions",
            )
        put = to_base64 if body.encoding_format == "base64" else as_float32
        data = [
            {"object": "embedding", "index": number, "embedding": put(vector.reshape(-1))}
            for number, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        shape = {"shape": found.vectors[0].shape} if found.vectors[0].ndim > 1 else {}
        return to_json({"object": "list", "data": data, "model": name, "usage": usage, **shape})

    for path in ("/v1/embeddings", "/embeddings"):
        router.post(path, responses={200: {"model": EmbeddingsAnswer}, **ERRORS}, summary="Sentence vectors")(
            embeddings
        )

    @router.get("/v1/models", responses={200: {"model": ModelsAnswer}, **ERRORS}, summary="The models")
    async def models() -> Response:
        """What may be given as model."""
        data = [{"id": name, "object": "model", "created": started, "owned_by": "elmokit"} for name in service.encoders]
        return to_json({"object": "list", "data": data})

    return router
