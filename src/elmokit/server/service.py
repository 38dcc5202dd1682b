"""`Service`: the models and indexes that a server has, and the thread that runs them.

    service = Service.load(ServerSettings(), model=["en"])
    service.warm_up()
    found = await service.encode(["A sentence."], layers="top")   # batched with all other requests
    words = await service.run(lambda: service.language_model().fill("He sat on the ___.", n=5))
    table = await service.cached(("drift", a, b), lambda: measure_drift(first, second))

A coroutine that is cancelled, because its client went away, takes its job out of the queue. A job that runs already may
look at `current_job().cancelled`.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal, TypeVar

from elmokit.encoders import Elmo, Encoder, load_encoder
from elmokit.encoders.encoder import Layers
from elmokit.encoders.results import Choice, Vectors
from elmokit.errors import InputError
from elmokit.formats.given import sentences_of
from elmokit.index import Index
from elmokit.layers import LayerChoice
from elmokit.lm import LanguageModel
from elmokit.server.embedding import Embedding, Pooling, Shaping, lanes_of, run_embeddings
from elmokit.server.errors import ApiError, LateError
from elmokit.server.jobs import Call, Job, ModelThread
from elmokit.server.settings import ServerSettings
from elmokit.server.sources import all_named, load_indexed, load_task_model, named
from elmokit.tasks.saved import TaskModel
from elmokit.text import Sentence, Tokenizer

T = TypeVar("T")
Lane = Literal["model", "side"]
Side = Literal["left", "right"]
LARGE = 50_000  # characters that are cut into words in a thread of their own, so that other requests go on
CACHED = 256  # results kept by `cached`
MOST_BYTES = 256 << 20  # of vectors in one answer
WARM = ("A first sentence.", "Another one, which is somewhat longer than the first, so that batches form.")


@dataclass
class Timing:
    """What one request took, for its headers, its log line and the metrics. Seconds."""

    cutting: float = 0.0
    queue: float = 0.0
    model: float = 0.0
    tokens: int = 0
    texts: int = 0
    characters: int = 0
    timeout: float = 60.0
    ends: float = field(default_factory=lambda: time.monotonic() + 60.0)  # the request's deadline


timing: ContextVar[Timing | None] = ContextVar("timing", default=None)


@dataclass(frozen=True, slots=True)
class Encoded:
    """What `Service.encode` returns: the sentences as they were cut, and an array for each."""

    sentences: list[Sentence]
    vectors: list[Vectors]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sentences))


class Service:
    """Encoders, task models and indexes by name, and the threads that run them. Safe from any thread."""

    def __init__(
        self,
        encoders: Mapping[str, Encoder],
        *,
        tasks: Mapping[str, TaskModel[Any, Any]] | None = None,
        indexes: Mapping[str, Index] | None = None,
        settings: ServerSettings | None = None,
    ) -> None:
        if not encoders:
            raise InputError("a server needs at least one encoder")
        self.settings = settings or ServerSettings()
        self.encoders, self.tasks, self.indexes = dict(encoders), dict(tasks or {}), dict(indexes or {})
        self.default = next(iter(self.encoders))
        self.ready = False
        self.stopping = False
        self.budget = self.settings.max_batch_tokens or (16_384 if self.encoder().device.type == "cuda" else 1_024)
        bound, seconds = self.settings.max_queue_tokens, self.settings.max_queue_seconds
        self.model = ModelThread(run=run_embeddings, bound=bound, budget=self.budget, seconds=seconds, lanes=lanes_of)
        self.side = ModelThread(run=run_embeddings, bound=bound, budget=self.budget, name="side")
        self._language_models: dict[str, LanguageModel] = {}
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock, self._loading = Lock(), Lock()

    @classmethod
    def load(cls, settings: ServerSettings, *, model: Sequence[str] = ()) -> "Service":
        """The models, task models and indexes that the settings name; `model` are encoders, the first the default."""
        device, dtype = settings.device, settings.dtype
        sources, tasks_at = all_named(model or (None,), "models"), all_named(settings.task, "task models")
        indexes_at = all_named(settings.index, "indexes")
        encoders = {name: load_encoder(source, device=device, dtype=dtype) for name, source in sources.items()}
        known = {encoder.fingerprint: encoder for encoder in encoders.values()}
        tasks = {name: load_task_model(source or "", known, device) for name, source in tasks_at.items()}
        indexes = {name: Index.open(source or "") for name, source in indexes_at.items()}
        for index in indexes.values():
            if index.manifest.model not in {encoder.fingerprint for encoder in encoders.values()}:
                place = index.manifest.model_place
                name, _ = named(place)
                encoders[name if name not in encoders else place] = load_indexed(index, device)
        return cls(encoders, tasks=tasks, indexes=indexes, settings=settings)

    def start(self) -> None:
        """Starts the threads; once, in the process that serves."""
        self.model.start()
        self.side.start()

    def warm_up(self) -> None:
        """Starts the threads and runs every encoder, at first a little and then as much as a full batch.

        So the first request is as quick as the others, and the memory that batches need is there.
        """
        if not self.model.started:
            self.start()
        later, shaping = time.monotonic() + 600, Shaping(LayerChoice.parse("average"))
        for encoder in self.encoders.values():
            few = [encoder.tokenizer.tokenize(text) for text in WARM]
            tokens = tuple(token for sentence in few for token in sentence.tokens)
            many = [Sentence(tokens[: 1 + k % len(tokens)]) for k in range(2 * self.budget // (len(tokens) + 5))]
            for sentences in (few, many):
                job = Embedding(encoder, sentences, shaping, deadline=later, patience=600)
                self.model.submit(job)
                job.future.result()
        self.ready = True

    def close(self) -> None:
        """Ends the threads when the jobs that wait are done."""
        self.ready, self.stopping = False, True
        self.model.close()
        self.side.close()

    @property
    def problem(self) -> str | None:
        """Why the server is not healthy, if it is not."""
        return self.model.problem or self.side.problem

    def encoder(self, name: str | None = None) -> Encoder:
        """The encoder of that name, or the default one."""
        return self.encoders[self.model_name(name)]

    def model_name(self, name: str | None = None) -> str:
        """The name that an encoder is served under; its source will do as well. An unknown one is a 404."""
        if name is None:
            return self.default
        if name in self.encoders:
            return name
        for served, encoder in self.encoders.items():
            if name == encoder.source:
                return served
        raise ApiError(
            404,
            f"no model {name!r} here; this server has {', '.join(self.encoders)}",
            param="model",
            code="model_not_found",
        )

    def task(self, name: str) -> TaskModel[Any, Any]:
        """The task model of that name."""
        return _find(self.tasks, name, "task model", "--task")

    def index(self, name: str) -> Index:
        """The index of that name."""
        return _find(self.indexes, name, "index", "--index")

    def language_model(self, name: str | None = None) -> LanguageModel:
        """The language model of an ELMo, made when it is first asked for; call it inside `run`."""
        name = self.model_name(name)
        with self._loading:
            if name not in self._language_models:
                encoder = self.encoders[name]
                if not isinstance(encoder, Elmo):
                    raise ApiError(400, f"the model {name!r} is no language model; an ELMo is needed", param="model")
                if encoder.pretrained.softmax is None:
                    raise ApiError(400, f"the model {name!r} holds no output layer: it predicts nothing", param="model")
                made = LanguageModel(encoder.pretrained, device=encoder.device, tokenizer=encoder.tokenizer)
                self._language_models[name] = made
            return self._language_models[name]

    def model_of(self, index: str) -> str:
        """The name of the encoder that an index was made with."""
        wanted = self.index(index).manifest.model
        for name, encoder in self.encoders.items():
            if encoder.fingerprint == wanted:
                return name
        raise ApiError(404, f"the model of the index {index!r} is not served here", code="model_not_found")

    def sentences(
        self, texts: Sequence[Any], *, tokenizer: Tokenizer | None = None, truncate: Side | None = None
    ) -> list[Sentence]:
        """Texts, or lists of tokens, as sentences, within the server's limits.

        With `truncate`, what is too long on the left or on the right of a text is left out; else it is refused.
        """
        settings = self.settings
        if len(texts) > settings.max_inputs:
            raise ApiError(413, f"{len(texts):,} texts in one request; at most {settings.max_inputs:,} may be sent")
        cut = list(sentences_of(texts, tokenizer=tokenizer or self.encoder().tokenizer))
        most = settings.max_input_tokens
        if truncate is not None:
            return [_truncated(sentence, most, truncate) for sentence in cut]
        for number, sentence in enumerate(cut):
            if len(sentence) > most:
                raise ApiError(
                    413,
                    f"text {number} has {len(sentence):,} tokens; at most {most:,} are read",
                    param="input",
                    code="context_length_exceeded",
                )
        return cut

    async def cut(
        self,
        texts: Sequence[Any],
        *,
        model: str | None = None,
        tokenizer: Tokenizer | None = None,
        truncate: Side | None = None,
    ) -> list[Sentence]:
        """`sentences`, in a thread of its own if there is much text; counted as this request's text."""
        began, size = time.monotonic(), sum(len(text) for text in texts)
        self.model.check_room(0)
        cutter = tokenizer or self.encoder(model).tokenizer
        if size > LARGE:
            found = await asyncio.to_thread(self.sentences, texts, tokenizer=cutter, truncate=truncate)
        else:
            found = self.sentences(texts, tokenizer=cutter, truncate=truncate)
        if (told := timing.get()) is not None and not (texts and isinstance(texts[0], Sentence)):
            told.cutting += time.monotonic() - began
            told.texts += len(texts)
            told.characters += sum(len(s.text) if s.text is not None else sum(map(len, s.tokens)) for s in found)
            told.tokens += sum(map(len, found))
        return found

    async def encode(
        self,
        texts: Sequence[Any],
        *,
        model: str | None = None,
        layers: Layers = "average",
        pooling: Pooling = "mean",
        normalise: bool = False,
        truncate: Side | None = None,
        deadline: float | None = None,
    ) -> Encoded:
        """The vectors of texts, token lists or Sentences, batched with those of all other requests.

        As `Encoder.encode` gives them, or with pooling "none" as `encode_tokens` does. `deadline` is a time of
        time.monotonic(); default: the request's own.
        """
        encoder = self.encoder(model)
        choice = LayerChoice.parse(layers)
        picked = choice.indices(encoder.depth)  # a layer that is not there is refused before anything waits
        if len(set(picked)) < len(picked):
            raise ApiError(400, f"layers {layers!r} name a layer twice", param="layers")
        sentences = await self.cut(texts, model=model, truncate=truncate)
        if not sentences:
            return Encoded([], [])
        rows = sum(map(len, sentences)) if pooling == "none" else len(sentences)
        size = 4 * math.prod(Choice(choice).axes(encoder.depth, encoder.width)) * rows
        if size > MOST_BYTES:
            told = f"{size >> 20:,} MiB; at most {MOST_BYTES >> 20} MiB are sent"
            raise ApiError(413, f"the vectors of these texts take {told}; send fewer texts", param="input")
        patience = self.settings.stuck_seconds * max(1.0, max(map(len, sentences)) / 1024)
        ends = self._ends(deadline)
        job = Embedding(encoder, sentences, Shaping(choice, pooling, normalise), deadline=ends, patience=patience)
        return Encoded(sentences, await self._wait(job, self.model))

    async def run(
        self,
        function: Callable[[], T],
        *,
        tokens: int = 1,
        deadline: float | None = None,
        lane: Lane = "model",
        patience: float | None = None,
    ) -> T:
        """The result of a function, run in its turn by the model thread, or by the side thread (lane "side").

        tokens    how much it counts in the queue; more than the queue may hold is an error 413
        deadline  a time of time.monotonic(); default: the request's own. Later than that, it is an error 504
        patience  seconds after which /health fails because of it; default: until its deadline, and no less than the
                  server's `stuck_seconds`

        Work on an index, which needs no model, belongs to the side thread, so that it does not hold up encoding.
        """
        if tokens > (most := self.settings.max_queue_tokens):  # it cannot be cut into turns
            raise ApiError(413, f"{tokens:,} tokens in one request; at most {most:,} are read here", param="input")
        ends = self._ends(deadline)
        least = self.settings.stuck_seconds
        patience = max(ends - time.monotonic(), least) if patience is None else patience
        job = Call(function, tokens, deadline=ends, patience=patience)
        found: T = await self._wait(job, self.model if lane == "model" else self.side)
        return found

    async def cached(self, key: Hashable, function: Callable[[], T], **options: Any) -> T:
        """`run`, but the result is kept and given again for the same key; the options are those of `run`."""
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                hit: T = self._cache[key]
                return hit
        found = await self.run(function, **options)
        with self._lock:
            self._cache[key] = found
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return found

    def _ends(self, deadline: float | None) -> float:
        if deadline is not None:
            return deadline
        told = timing.get()
        return told.ends if told is not None else time.monotonic() + self.settings.timeout

    async def _wait(self, job: Job, thread: ModelThread) -> Any:
        thread.submit(job)
        told = timing.get()
        try:
            async with asyncio.timeout(max(job.deadline - time.monotonic(), 0)):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            raise LateError(told.timeout if told is not None else job.deadline - job.queued) from None
        finally:
            if told is not None:
                told.queue += job.waited
                told.model += job.spent


def _find(known: Mapping[str, T], name: str, what: str, flag: str) -> T:
    if name not in known:
        have = f"this server has {', '.join(known)}" if known else f"the server was started without {flag}"
        raise ApiError(404, f"no {what} {name!r} here; {have}", code="not_found")
    return known[name]


def _truncated(sentence: Sentence, most: int, side: Side) -> Sentence:
    if len(sentence) <= most:
        return sentence
    kept = slice(-most, None) if side == "left" else slice(most)
    offsets = None if sentence.offsets is None else sentence.offsets[kept]
    return Sentence(sentence.tokens[kept], sentence.text, offsets, sentence.start)
