"""/v1/neighbours, /v1/senses, /v1/drift: words in the corpora that were indexed."""

from dataclasses import asdict
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from elmokit.analysis.drift import DriftConfig, measure_drift
from elmokit.analysis.neighbours import Neighbours, find_neighbours
from elmokit.analysis.word_senses import SensesConfig, Use, group_indexed
from elmokit.errors import InputError
from elmokit.index import Index
from elmokit.server.bodies import SafeRoute
from elmokit.server.jobs import leave_if_cancelled
from elmokit.server.schemas import ERRORS, example
from elmokit.server.service import Service
from elmokit.server.wire import to_json


class NeighboursRequest(BaseModel):
    """A word in its sentence."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=example(input="He fished from the bank.", word="bank")
    )

    input: str = Field(description="A sentence that contains the word.")
    word: str | None = Field(None, description="The word.", max_length=1000)
    position: int | None = Field(None, ge=0, description="Number of the word, from 0, if it occurs twice.")
    number: int = Field(10, ge=1, le=1000, description="Contexts to find.")
    same_word: bool = Field(False, description="Only contexts of the same word.")
    exact: bool = Field(False, description="Compare all vectors, even of a large index.")


class OccurrenceObject(BaseModel):
    """A word in its sentence: text[start:end] is the word."""

    word: str
    text: str
    start: int
    end: int


class ContextObject(OccurrenceObject):
    """One context, and how like it is; copies of its sentence are counted."""

    score: float
    copies: int


class StaticObject(BaseModel):
    """A word whose one vector is near, whatever the sentence."""

    word: str
    score: float


class NeighboursAnswer(BaseModel):
    """The nearest contexts, best first."""

    index: str
    word: str
    position: int
    contexts: list[ContextObject]
    static: list[StaticObject]


class SensesRequest(BaseModel):
    """A word, whose uses are grouped."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=example(word="bank", clusters=2))

    word: str = Field(description="The word, in any case.", max_length=1000)
    clusters: int | None = Field(None, ge=1, le=50, description="Groups; default: by the best silhouette.")
    uses: int = Field(500, ge=2, le=5000, description="Uses to group, evenly spaced.")
    examples: int = Field(5, ge=1, le=100, description="Typical uses to show of each group.")


class GroupObject(BaseModel):
    """A group of uses, with the most typical ones."""

    size: int
    silhouette: float
    examples: list[OccurrenceObject]


class SensesAnswer(BaseModel):
    """The groups, the largest first; silhouettes by number of groups, as far as they were tried."""

    index: str
    word: str
    uses: int
    groups: list[GroupObject]
    silhouettes: dict[str, float]


class DriftRequest(BaseModel):
    """Two indexes of the same model."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra=example(first="old", second="new", number=20)
    )

    first: str
    second: str
    words: list[str] | None = Field(None, description="Only these; default: all that are frequent in both.")
    by: Literal["net", "prt", "apd", "jsd"] = "net"
    number: int = Field(20, ge=1, le=10_000, description="Words to show.")
    min_count: int = Field(10, ge=2, le=1_000_000)
    per_word: int = Field(200, ge=2, le=10_000)
    clusters: int = Field(5, ge=2, le=50)
    examples: int = Field(2, ge=0, le=100)


class DriftObject(BaseModel):
    """One word; see docs/neighbours.md for the measures."""

    word: str
    first: int
    second: int
    net: float
    prt: float
    apd: float
    jsd: float
    p: float = Field(description="Of prt.")
    p_net: float
    p_apd: float
    p_jsd: float
    q: float = Field(description="p of the measure that the list is ranked by, corrected for the number of words.")
    first_examples: list[OccurrenceObject]
    second_examples: list[OccurrenceObject]


class DriftAnswer(BaseModel):
    """The words whose use differs most, the most first."""

    total: int
    data: list[DriftObject]


class IndexObject(BaseModel):
    """An index that the server has."""

    id: str
    occurrences: int
    words: int
    layers: str
    model: str


class IndexesAnswer(BaseModel):
    """All of them."""

    data: list[IndexObject]


def corpora_router(service: Service) -> APIRouter:
    """The routes."""
    router = APIRouter(route_class=SafeRoute, tags=["elmokit"])

    @router.get("/v1/indexes", responses={200: {"model": IndexesAnswer}, 401: ERRORS[401]}, summary="The indexes")
    async def indexes() -> Response:
        """What may be given as index."""
        data = [
            {
                "id": name,
                "occurrences": len(index),
                "words": len(index.words),
                "layers": index.settings.layers,
                "model": service.model_of(name),
            }
            for name, index in service.indexes.items()
        ]
        return to_json({"data": data})

    near: dict[int | str, dict[str, Any]] = {200: {"model": NeighboursAnswer}, **ERRORS}

    @router.post("/v1/neighbours/{index}", responses=near, summary="Contexts of a corpus")
    async def neighbours(index: str, body: NeighboursRequest) -> Response:
        """The contexts in which a word is used as it is in the sentence."""
        opened = _filled(service, index)
        encoder = service.encoder(service.model_of(index))
        (sentence,) = await service.cut([body.input], model=service.model_of(index))

        def work() -> Neighbours:
            return find_neighbours(
                opened,
                encoder,
                sentence,
                word=body.word,
                position=body.position,
                k=body.number,
                same_word=body.same_word,
                exact=body.exact,
            )

        found = await service.run(
            work,
            tokens=len(sentence) + 2,
            lane="side",
        )
        contexts = [{**_occurrence(c.occurrence), "score": c.score, "copies": c.copies} for c in found.contexts]
        static = [{"word": word, "score": score} for word, score in found.static]
        told = {"index": index, "word": found.word, "position": found.position}
        return to_json({**told, "contexts": contexts, "static": static})

    @router.post("/v1/senses/{index}", responses={200: {"model": SensesAnswer}, **ERRORS}, summary="Uses in groups")
    async def senses(index: str, body: SensesRequest) -> Response:
        """The uses of a word in a corpus, in groups."""
        opened = _filled(service, index)
        key = ("senses", index, len(opened), body.model_dump_json())
        return to_json({"index": index, **await service.cached(key, lambda: _senses(opened, body), lane="side")})

    @router.post("/v1/drift", responses={200: {"model": DriftAnswer}, **ERRORS}, summary="Words used differently")
    async def drift(body: DriftRequest) -> Response:
        """Words by how differently they are used in two corpora."""
        first, second = _filled(service, body.first), _filled(service, body.second)
        key = ("drift", len(first), len(second), body.model_dump_json())
        return to_json(await service.cached(key, lambda: _drift(first, second, body), lane="side"))

    return router


def _filled(service: Service, name: str) -> Index:
    index = service.index(name)
    if not len(index):
        raise InputError(f"the index {name!r} holds no words yet")
    return index


def _occurrence(at: Any) -> dict[str, Any]:
    return {"word": at.word, "text": at.text, "start": at.start, "end": at.end}


def _senses(index: Index, body: SensesRequest) -> dict[str, Any]:
    config = SensesConfig(clusters=body.clusters, uses=body.uses, examples=body.examples)
    found = group_indexed(index, body.word, config=config)
    groups = [
        {
            "size": len(group.uses),
            "silhouette": group.silhouette,
            "examples": [_use(found.uses[number]) for number in group.examples],
        }
        for group in found.groups
    ]
    silhouettes = {str(count): value for count, value in found.silhouettes.items()}
    return {"word": body.word, "uses": len(found.uses), "groups": groups, "silhouettes": silhouettes}


def _use(use: Use) -> dict[str, Any]:
    start, end = (use.sentence.offsets or ())[use.position]
    return {"word": use.word, "text": use.sentence.text, "start": start, "end": end}


def _drift(first: Index, second: Index, body: DriftRequest) -> dict[str, Any]:
    config = DriftConfig(
        by=body.by, min_count=body.min_count, per_word=body.per_word, clusters=body.clusters, examples=body.examples
    )

    found = measure_drift(first, second, words=body.words, config=config, told=leave_if_cancelled)
    data = []
    for word in found[: body.number]:
        sides = {
            side: [_occurrence(at) for at in getattr(word, side)] for side in ("first_examples", "second_examples")
        }
        data.append({**asdict(word), **sides})
    return {"total": len(found), "data": data}
