"""The surface of Hugging Face's text-embeddings-inference: its paths, its shapes and its status codes."""

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from elmokit import __version__
from elmokit.server.bodies import SafeRoute
from elmokit.server.errors import ApiError
from elmokit.server.schemas import MEANINGS, Layers, TeiError, example
from elmokit.server.service import Service, Side
from elmokit.server.wire import as_float32, to_json

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": TeiError, "description": told}
    for status, told in {**MEANINGS, 422: "The inputs are not understood.", 424: "The model failed."}.items()
    if status not in (404, 500)
}
Texts = str | list[str] | list[int] | list[list[int]]


class Parameters(BaseModel):
    """What becomes of the texts."""

    model_config = ConfigDict(strict=True)

    truncate: bool | None = Field(None, description="Read only the beginning of a text that is too long.")
    truncation_direction: Literal["Left", "Right", "left", "right"] = Field(
        "Right", description="Which end of a text that is too long is left out."
    )
    prompt_name: str | None = Field(None, description="Not supported: the models have no prompts.")


class Inputs(Parameters):
    """What all these routes take."""

    inputs: Texts = Field(description="One text, or a list of texts.")

    @model_validator(mode="before")
    @classmethod
    def _lifted(cls, given: Any) -> Any:
        """huggingface_hub up to 0.30 sends the options inside `parameters`."""
        if isinstance(given, dict) and isinstance(options := given.get("parameters"), dict):
            return {**{name: value for name, value in options.items() if value is not None}, **given}
        return given

    def texts(self) -> list[str]:
        """The texts; token ids are refused."""
        if self.prompt_name is not None:
            raise ApiError(422, "prompt_name was given, but the models here have no prompts; leave it out")
        given: Any = [self.inputs] if isinstance(self.inputs, str) else self.inputs
        if not given:
            raise ApiError(400, "`inputs` cannot be empty", code="empty_input")
        if not isinstance(given[0], str):
            raise ApiError(422, "token ids were sent, which these models do not have: send texts")
        return list(given)

    @property
    def side(self) -> Side | None:
        """Which end of a long text is left out; None: it is refused."""
        return ("left" if self.truncation_direction.lower() == "left" else "right") if self.truncate else None


class EmbedRequest(Inputs):
    """POST /embed"""

    model_config = ConfigDict(json_schema_extra=example(inputs=["A sentence.", "Another."]))

    normalize: bool = Field(True, description="Vectors of length 1.")
    dimensions: int | None = Field(None, ge=1, description="Refused unless it is the size that the vectors have.")
    layers: Layers = "average"


class EmbedAllRequest(Inputs):
    """POST /embed_all"""

    model_config = ConfigDict(json_schema_extra=example(inputs="A sentence."))

    layers: Layers = "average"


class TokenizeRequest(BaseModel):
    """POST /tokenize"""

    model_config = ConfigDict(strict=True, json_schema_extra=example(inputs="A sentence."))

    inputs: str | list[str]
    add_special_tokens: bool = Field(True, description="Taken and left unused: boundaries are no tokens of the text.")
    prompt_name: str | None = None


class TokenObject(BaseModel):
    """A word and its place in the text, in characters. Words have no ids: `id` is always 0."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Compared(BaseModel):
    """One text against others."""

    model_config = ConfigDict(strict=True)

    source_sentence: str
    sentences: list[str]


class SimilarityRequest(BaseModel):
    """POST /similarity"""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra=example(inputs={"source_sentence": "A cat.", "sentences": ["A dog.", "A bank."]}),
    )

    inputs: Compared
    parameters: Parameters | None = None


class Info(BaseModel):
    """GET /info"""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, dict[str, str]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


def tei_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=SafeRoute, tags=["text-embeddings-inference"])

    async def embed(body: EmbedRequest) -> Response:
        """One vector per text."""
        found = await service.encode(body.texts(), layers=body.layers, normalise=body.normalize, truncate=body.side)
        size = found.vectors[0].reshape(-1).shape[0]
        if body.dimensions not in (None, size):
            raise ApiError(
                422, f"dimensions is {body.dimensions}, but the vectors have {size}, and a part is no vector"
            )
        return to_json([as_float32(vector.reshape(-1)) for vector in found.vectors])

    async def similarity(body: SimilarityRequest) -> Response:
        """The cosine of one text with each of the others."""
        if not body.inputs.sentences:
            raise ApiError(400, "`inputs.sentences` cannot be empty", code="empty_input")
        parameters = body.parameters.model_dump() if body.parameters else {}
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        inputs = Inputs.model_validate({"inputs": texts, **parameters})
        found = await service.encode(inputs.texts(), normalise=True, truncate=inputs.side)
        vectors = np.stack(found.vectors)
        return to_json(as_float32((vectors[1:] @ vectors[0]).clip(-1, 1)))

    async def either(body: EmbedRequest | SimilarityRequest) -> Response:
        """/embed, or /similarity if that is what the body holds."""
        return await (embed(body) if isinstance(body, EmbedRequest) else similarity(body))

    told: dict[int | str, dict[str, Any]] = {200: {"model": list[list[float]]}, **ERRORS}
    router.post("/embed", responses=told, summary="Sentence vectors")(embed)
    both: dict[int | str, dict[str, Any]] = {200: {"model": list[list[float]] | list[float]}, **ERRORS}
    router.post("/", responses=both, summary="Sentence vectors or similarities")(either)
    cosines: dict[int | str, dict[str, Any]] = {200: {"model": list[float]}, **ERRORS}
    router.post("/similarity", responses=cosines, summary="How alike texts are")(similarity)

    @router.post(
        "/embed_all", responses={200: {"model": list[list[list[float]]]}, **ERRORS}, summary="A vector per word"
    )
    async def embed_all(body: EmbedAllRequest) -> Response:
        """The vectors of all words of each text."""
        found = await service.encode(body.texts(), layers=body.layers, pooling="none", truncate=body.side)
        return to_json([as_float32(vectors.reshape(-1, vectors.shape[-1])) for vectors in found.vectors])

    @router.post(
        "/tokenize", responses={200: {"model": list[list[TokenObject]]}, **ERRORS}, summary="Texts cut into words"
    )
    async def tokenize(body: TokenizeRequest) -> Response:
        """The words of each text, with their places."""
        texts = Inputs.model_validate({"inputs": body.inputs, "prompt_name": body.prompt_name}).texts()
        return to_json(
            [
                [
                    {"id": 0, "text": word, "special": False, "start": start, "stop": stop}
                    for word, (start, stop) in zip(sentence.tokens, sentence.spans, strict=True)
                ]
                for sentence in await service.cut(texts)
            ]
        )

    @router.get("/info", responses={200: {"model": Info}, 401: ERRORS[401]}, summary="The model and the limits")
    async def info() -> Response:
        """What the server has."""
        encoder, settings = service.encoder(), service.settings
        return to_json(
            {
                "model_id": service.default,
                "model_sha": encoder.fingerprint,
                "model_dtype": str(encoder.dtype).removeprefix("torch."),
                "model_type": {"embedding": {"pooling": "mean"}},
                "max_concurrent_requests": settings.max_queue_tokens,
                "max_input_length": settings.max_input_tokens,
                "max_batch_tokens": service.budget,
                "max_batch_requests": None,
                "max_client_batch_size": settings.max_inputs,
                "auto_truncate": False,
                "tokenization_workers": 1,
                "version": __version__,
                "sha": None,
                "docker_label": None,
            }
        )

    return router
