"""/v1/predict, /v1/perplexity, /v1/compare: the language model, and one word in several contexts."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from elmokit.analysis.compare import compare_word, find_word
from elmokit.lm import LanguageModel, PerplexityReport
from elmokit.lm.predictions import blank_positions, read_context
from elmokit.lm.scores import SentenceScore
from elmokit.server.bodies import SafeRoute
from elmokit.server.errors import ApiError
from elmokit.server.jobs import leave_if_cancelled
from elmokit.server.openai import texts_of
from elmokit.server.schemas import ERRORS, ModelName, TokenLists, example
from elmokit.server.service import Service
from elmokit.server.wire import to_json
from elmokit.text import Sentence

MOST_PAIRS = 1_000


class PredictRequest(BaseModel):
    """A sentence with ___ where a word is missing; without one, the words after and before it are predicted."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=example(input="He sat on the ___ of the river.", top=5)
    )

    input: str | None = Field(None, description="The sentence.")
    tokens: list[str] | None = Field(None, description="The sentence as a list of words, instead of input.")
    top: int = Field(10, ge=1, le=1000, description="Words to propose.")
    unknown: bool = Field(False, description="Propose <UNK>, any word out of the vocabulary, too.")
    model: ModelName = None


class CandidateObject(BaseModel):
    """A word and its probability."""

    word: str
    probability: float


class PredictAnswer(BaseModel):
    """Words, best first: from left context, from right context, from both; without a blank, after and before."""

    model: str
    tokens: list[str]
    position: int | None
    forward: list[CandidateObject] | None = None
    backward: list[CandidateObject] | None = None
    both: list[CandidateObject] | None = None
    next: list[CandidateObject] | None = None
    previous: list[CandidateObject] | None = None


class PerplexityRequest(BaseModel):
    """Sentences to measure."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=example(input=["The river burst its banks."])
    )

    input: str | list[str] | None = Field(None, description="One sentence, or a list of sentences.")
    tokens: TokenLists | None = Field(None, description="Sentences that are cut into words already.")
    per_sentence: bool = Field(False, description="The probability of every word, too.")
    model: ModelName = None


class SentenceObject(BaseModel):
    """Natural logarithms: every word and the end forward; the beginning and every word backward."""

    tokens: list[str]
    forward: list[float] | None
    backward: list[float] | None
    unknown: list[bool]
    perplexity: float


class PerplexityAnswer(BaseModel):
    """How well the sentences are predicted; lower is better."""

    model: str
    forward: float | None
    backward: float | None
    mean: float
    sentences: int
    words: int
    unknown: int
    per_sentence: list[SentenceObject] | None = None


class CompareRequest(BaseModel):
    """A word in different sentences."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra=example(input=["He sat on the bank.", "She went to the bank."], word="bank"),
    )

    input: list[str] | None = Field(None, description="Sentences that contain the word.")
    tokens: TokenLists | None = Field(None, description="Sentences that are cut into words already.")
    word: str = Field(description="The word.", max_length=1000)
    match_case: bool = Field(False, description="Only places where the word is spelled as given: not Bank for bank.")
    model: ModelName = None


class Comparison(BaseModel):
    """Two places of the word: cosines by layer."""

    word: tuple[str, str]
    sentence: tuple[int, int]
    position: tuple[int, int]
    cosines: dict[str, float]


class CompareAnswer(BaseModel):
    """All pairs of places."""

    model: str
    data: list[Comparison]


def words_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=SafeRoute, tags=["elmokit"])

    @router.post("/v1/predict", responses={200: {"model": PredictAnswer}, **ERRORS}, summary="Words for a blank")
    async def predict(body: PredictRequest) -> Response:
        """The likeliest words for the blank."""
        if (body.input is None) == (body.tokens is None):
            raise ApiError(400, "send either 'input' (text) or 'tokens' (a list of words)", param="input")
        name = service.model_name(body.model)
        given: Any = body.input if body.input is not None else body.tokens
        cut = await service.cut([given], model=name)

        def work() -> dict[str, Any]:
            return _predict(service.language_model(name), given, body)

        return to_json({"model": name, **await service.run(work, tokens=len(cut[0]) + 2)})

    @router.post("/v1/perplexity", responses={200: {"model": PerplexityAnswer}, **ERRORS}, summary="Perplexity")
    async def perplexity(body: PerplexityRequest) -> Response:
        """How well the language model predicts sentences."""
        name = service.model_name(body.model)
        sentences = [sentence for sentence in await service.cut(texts_of(body), model=name) if len(sentence)]
        tokens = sum(len(sentence) + 2 for sentence in sentences)
        scores = await service.run(lambda: _scores(service.language_model(name), sentences), tokens=tokens)
        report = PerplexityReport.of(scores)
        told: dict[str, Any] = {"model": name, **asdict(report), "mean": report.mean}
        if body.per_sentence:
            told["per_sentence"] = [{**asdict(score), "perplexity": score.perplexity} for score in scores]
        return to_json(told)

    @router.post("/v1/compare", responses={200: {"model": CompareAnswer}, **ERRORS}, summary="A word in contexts")
    async def compare(body: CompareRequest) -> Response:
        """How alike a word is in different sentences, layer by layer."""
        name = service.model_name(body.model)
        sentences = await service.cut(texts_of(body), model=name)
        places = find_word(sentences, body.word, match_case=body.match_case)
        if len(places) ** 2 > 2 * MOST_PAIRS:
            raise ApiError(413, f"the word stands in {len(places)} places; at most {MOST_PAIRS} pairs are compared")
        found = await service.encode(sentences, model=name, layers="all", pooling="none")
        pairs = compare_word(found.sentences, found.vectors, places, names=service.encoder(name).layer_names)
        return to_json({"model": name, "data": [pair._asdict() for pair in pairs]})

    return router


def _scores(lm: LanguageModel, sentences: list[Sentence]) -> list[SentenceScore]:
    found: dict[int, SentenceScore] = {}
    for position, score in lm.scores(sentences):
        found[position] = score
        leave_if_cancelled()
    return [found[position] for position in range(len(sentences))]


def _predict(lm: LanguageModel, given: Any, body: PredictRequest) -> dict[str, Any]:
    sentence = read_context(given, lm.tokenizer)
    blanks = blank_positions(sentence)
    if blanks:
        found = lm.fill(sentence, n=body.top, unknown=body.unknown)
        columns: dict[str, Any] = {"forward": found.forward, "backward": found.backward, "both": found.both}
    else:
        has = lm.directions
        columns = {
            "next": lm.next_words(sentence, n=body.top, unknown=body.unknown) if "forward" in has else None,
            "previous": lm.previous_words(sentence, n=body.top, unknown=body.unknown) if "backward" in has else None,
        }
    shown = {name: None if words is None else [w._asdict() for w in words] for name, words in columns.items()}
    return {"tokens": sentence.tokens, "position": blanks[0] if blanks else None, **shown}
