"""/v1/tokens: a vector per word and layer, with the words' places; JSON, base64, safetensors or an Arrow stream."""

import io
from typing import Any, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from safetensors.numpy import save

from elmokit.server.bodies import SafeRoute
from elmokit.server.errors import ApiError
from elmokit.server.openai import Usage, texts_of
from elmokit.server.schemas import ERRORS, Layers, ModelName, TokenLists, example
from elmokit.server.service import Encoded, Service
from elmokit.server.wire import as_float32, to_base64, to_json

ARROW = "application/vnd.apache.arrow.stream"
SAFETENSORS = "application/vnd.safetensors"
BINARY = {"schema": {"type": "string", "format": "binary"}}


class TokensRequest(BaseModel):
    """As /v1/embeddings, but every word keeps its vector."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=example(input=["He sat on the bank."], layers="top")
    )

    input: str | list[str] | None = Field(None, description="One text, or a list of texts.")
    tokens: TokenLists | None = Field(None, description="Texts that are cut into words already, instead of input.")
    model: ModelName = None
    encoding_format: Literal["float", "base64", "safetensors", "arrow"] = Field(
        "float", description="float and base64 (little-endian float32): JSON. The others: the answer is such a file."
    )
    layers: Layers = "average"
    normalize: bool = Field(False, description="Vectors of length 1.")


class TokensObject(BaseModel):
    """One text: its words, their places in it, and vectors (T, D), or (L, T, D) for layers all."""

    object: Literal["tokens"]
    index: int
    tokens: list[str]
    offsets: list[tuple[int, int]]
    shape: list[int]
    vectors: list[Any] | str


class TokensAnswer(BaseModel):
    """All texts."""

    object: Literal["list"]
    data: list[TokensObject]
    model: str
    layers: str
    usage: Usage


def tokens_router(service: Service) -> APIRouter:
    """The route."""
    router = APIRouter(route_class=SafeRoute, tags=["elmokit"])
    content = {"application/json": {}, SAFETENSORS: BINARY, ARROW: BINARY}
    told: dict[int | str, dict[str, Any]] = {200: {"model": TokensAnswer, "content": content}, **ERRORS}

    @router.post("/v1/tokens", responses=told, summary="Word vectors")
    async def tokens(body: TokensRequest) -> Response:
        """A vector for each word."""
        name = service.model_name(body.model)
        texts = texts_of(body)
        found = await service.encode(texts, model=name, layers=body.layers, pooling="none", normalise=body.normalize)
        if body.encoding_format == "safetensors":
            return Response(_safetensors(found), media_type=SAFETENSORS)
        if body.encoding_format == "arrow":
            return Response(_arrow(found), media_type=ARROW)
        put = to_base64 if body.encoding_format == "base64" else as_float32
        data = [
            {
                "object": "tokens",
                "index": number,
                "tokens": sentence.tokens,
                "offsets": sentence.spans,
                "shape": vectors.shape,
                "vectors": put(vectors),
            }
            for number, (sentence, vectors) in enumerate(zip(found.sentences, found.vectors, strict=True))
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        answer = {"object": "list", "data": data, "model": name, "layers": str(body.layers), "usage": usage}
        return to_json(answer)

    return router


def _safetensors(found: Encoded) -> bytes:
    """A tensor per text, named by its number; the words and offsets are in the metadata, as JSON."""
    words = [{"tokens": sentence.tokens, "offsets": sentence.spans} for sentence in found.sentences]
    tensors = {str(number): as_float32(vectors) for number, vectors in enumerate(found.vectors)}
    content: bytes = save(tensors, metadata={"texts": orjson.dumps(words).decode()})
    return content


def _arrow(found: Encoded) -> bytes:
    """A row per text: its words, where they start and end, the vectors in a row, and their shape."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        message = "the server has no pyarrow, which Arrow needs; there, run  pip install 'elmokit[parquet]'"
        raise ApiError(400, message, param="encoding_format") from None
    sentences, vectors = found.sentences, found.vectors
    ends = np.cumsum([0, *(v.size for v in vectors)], dtype=np.int64)
    numbers = np.concatenate([np.zeros(0, np.float32), *(as_float32(v).reshape(-1) for v in vectors)])
    table = pa.table(
        {
            "tokens": pa.array([list(s.tokens) for s in sentences], pa.list_(pa.string())),
            "starts": pa.array([[a for a, _ in s.spans] for s in sentences], pa.list_(pa.int32())),
            "ends": pa.array([[b for _, b in s.spans] for s in sentences], pa.list_(pa.int32())),
            "shape": pa.array([list(v.shape) for v in vectors], pa.list_(pa.int32())),
            "vectors": pa.LargeListArray.from_arrays(pa.array(ends), pa.array(numbers)),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
