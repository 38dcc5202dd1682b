"""A server from Python: `Client(url)` and `AsyncClient(url)`, with the calls that the local objects have.

    from elmokit.client import Client

    with Client("http://localhost:8000") as client:
        client.encode(["A sentence.", "Another."])      # (2, D), as Elmo.encode gives it
        client.encode_tokens("Each token has its vector.")
        client.predict("He sat on the ___ of the river.")["both"]
        client.apply("ner", ["Jane lives in Paris."])

A server that is busy (429), stopping (503), or cannot be reached is asked again, later and later.
"""

import asyncio
import json
import random
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from elmokit.errors import ElmokitError, InputError, MissingExtraError

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtraError("the client needs httpx, which is not installed", extra="client") from None

__all__ = ["AsyncClient", "Client", "ServerError"]

A = TypeVar("A")  # what a call gives
Vectors = NDArray[np.float32]
Texts = str | Sequence[str] | Sequence[Sequence[str]]
AGAIN = (429, 503)
LOST = (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)  # which are worth another try
LONGEST = 30.0  # seconds between two tries
AT_ONCE = 256  # texts in one request
EXPECTED = "expected a string, a list of strings, or a list of token lists"


class ServerError(ElmokitError):
    """The server's answer was an error. `status` is its number (0: no answer came), `code` its word for programs."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(f"the server answered {status}: {message}" if status else message)
        self.status, self.code = status, code


@dataclass(frozen=True, slots=True)
class _Call(Generic[A]):
    """One call as requests: what each sends (None: a GET), what is read from each answer, what all of it makes."""

    path: str
    bodies: Iterable[dict[str, Any] | None]
    read: Callable[[httpx.Response], list[Any]]
    made: Callable[[list[Any]], A]


class _Calls:
    """All that `Client` and `AsyncClient` have in common: everything but sending and waiting."""

    def __init__(self, url: str, *, key: str | None, model: str | None, retries: int, timeout: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"url is {url!r}; expected one such as http://localhost:8000")
        self.url, self.model, self.retries = url.rstrip("/"), model, retries
        headers = {} if key is None else {"Authorization": f"Bearer {key.strip()}".encode()}  # as the server reads keys
        self.options: dict[str, Any] = {"base_url": self.url, "headers": headers, "timeout": timeout}

    def _encode(self, texts: Texts, **options: Any) -> _Call[Vectors]:
        bodies = self._bodies(texts, encoding_format="base64", **options)
        return _Call("/v1/embeddings", bodies, _rows, lambda rows: _stacked(rows, texts))

    def _encode_tokens(self, texts: Texts, **options: Any) -> _Call[Any]:
        bodies = self._bodies(texts, encoding_format="safetensors", **options)
        return _Call("/v1/tokens", bodies, _vectors, lambda found: found[0] if isinstance(texts, str) else found)

    def _encode_layers(self, texts: Texts, **options: Any) -> _Call[Any]:
        call = self._encode_tokens(texts, **options)
        return replace(call, read=lambda answer: [v if v.ndim == 3 else v[None] for v in _vectors(answer)])

    def _predict(self, sentence: str | Sequence[str], **options: Any) -> _Call[dict[str, Any]]:
        given = {"input": sentence} if isinstance(sentence, str) else {"tokens": list(sentence)}
        return _Call("/v1/predict", [self._body(**given, **options)], _whole, _only)

    def _perplexity(self, texts: Texts, **options: Any) -> _Call[dict[str, Any]]:
        given = _listed(texts)
        bodies = list(self._bodies(given, **options))
        if len(bodies) != 1:
            raise InputError(f"{len(given):,} texts were given; expected 1 to {AT_ONCE}")
        return _Call("/v1/perplexity", bodies, _whole, _only)

    def _apply(self, task: str, texts: Any) -> _Call[list[Any]]:
        bodies = ({"input": few} for few in _parts(_listed(texts)))
        return _Call(f"/v1/tasks/{task}", bodies, _data, lambda found: found[0] if isinstance(texts, str) else found)

    def _models(self) -> _Call[list[str]]:
        return _Call("/v1/models", [None], _data, lambda rows: [row["id"] for row in rows])

    def _bodies(self, texts: Texts, **options: Any) -> Iterator[dict[str, Any]]:
        """The bodies of the requests that carry these texts."""
        given = _listed(texts)
        field = "input" if all(isinstance(text, str) for text in given) else "tokens"
        return (self._body(**{field: few}, **options) for few in _parts(given))

    def _body(self, **fields: Any) -> dict[str, Any]:
        return {name: value for name, value in {"model": self.model, **fields}.items() if value is not None}

    def _request(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        """What httpx is to send."""
        if body is None:
            return {"method": "GET", "url": path}
        try:
            content = json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as wrong:
            half = wrong.object[wrong.start]
            raise InputError(
                f"a text holds {half!r}, half a character, which no UTF-8 can carry; leave it out"
            ) from None
        return {"method": "POST", "url": path, "content": content, "headers": {"Content-Type": "application/json"}}

    def _delay(self, tried: int, got: httpx.Response | httpx.TransportError) -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        asked = 0.0
        if isinstance(got, httpx.Response):
            worth = got.status_code in AGAIN
            with suppress(ValueError):
                asked = float(got.headers.get("retry-after", 0))
        else:
            worth = isinstance(got, LOST)
        least: float = 0.1 * 2**tried
        return min(max(asked, least) * random.uniform(1, 1.25), LONGEST) if worth and tried < self.retries else None

    def _checked(self, got: httpx.Response | httpx.TransportError) -> httpx.Response:
        """The answer, if it is a good one."""
        if not isinstance(got, httpx.Response):
            raise ServerError(0, f"no answer from {self.url}: {got or type(got).__name__}") from got
        if got.is_success:
            return got
        message, code = got.text[:200], None
        with suppress(ValueError, AttributeError, TypeError, KeyError):
            told = got.json()["error"]
            message, code = (told, None) if isinstance(told, str) else (told["message"], told["code"])
        raise ServerError(got.status_code, message, code)


def _listed(texts: Any) -> list[Any]:
    """A list of strings, or of lists of strings."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise InputError(f"cannot send {type(texts).__name__} {texts!r}; {EXPECTED}")
    given: list[Any] = []
    for number, text in enumerate(texts):
        if not isinstance(text, str | list | tuple):
            raise InputError(f"text {number} is {type(text).__name__} {text!r}; {EXPECTED}")
        if given and isinstance(text, str) != isinstance(given[0], str):
            raise InputError(f"text {number} is a {type(text).__name__}, those before it are not; {EXPECTED}")
        given.append(text if isinstance(text, str) else list(text))
    return given


def _parts(given: list[Any]) -> Iterator[list[Any]]:
    """As much as one request carries."""
    return (given[start : start + AT_ONCE] for start in range(0, len(given), AT_ONCE))


def _whole(answer: httpx.Response) -> list[Any]:
    return [answer.json()]


def _only(found: list[Any]) -> dict[str, Any]:
    told: dict[str, Any] = found[0]
    return told


def _data(answer: httpx.Response) -> list[Any]:
    rows: list[Any] = answer.json()["data"]
    return rows


def _vectors(answer: httpx.Response) -> list[Any]:
    """The arrays of a safetensors answer, in order."""
    tensors = load(answer.content)
    return [tensors[str(number)] for number in range(len(tensors))]


def _rows(answer: httpx.Response) -> list[Any]:
    """A vector for each text; (L, D) for layers all."""
    told = answer.json()
    rows = (np.frombuffer(b64decode(row["embedding"]), dtype="<f4").astype(np.float32) for row in told["data"])
    return [row.reshape(told.get("shape", -1)) for row in rows]


def _stacked(rows: list[Any], texts: Texts) -> Vectors:
    if isinstance(texts, str):
        vectors: Vectors = rows[0]
        return vectors
    return np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)


class Client(_Calls):
    """A server, over connections that stay open; for any number of threads. Close it, or use it with `with`.

    key      for a server that asks for one
    model    the name of one of its models; default: its first
    retries  how often a busy server is asked again
    timeout  seconds that one try may take
    """

    def __init__(
        self, url: str, *, key: str | None = None, model: str | None = None, retries: int = 6, timeout: float = 120.0
    ) -> None:
        super().__init__(url, key=key, model=model, retries=retries, timeout=timeout)
        self.http = httpx.Client(**self.options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()

    def encode(
        self, texts: Texts, *, layers: str | int = "average", pooling: str = "mean", normalise: bool = False
    ) -> Vectors:
        """One vector per text: (N, D), or (D,) for one string; as `Encoder.encode`."""
        return self._run(self._encode(texts, layers=layers, pooling=pooling, normalize=normalise))

    def encode_tokens(self, texts: Texts, *, layers: str | int = "average", normalise: bool = False) -> Any:
        """One vector per token: a list of (T, D), or (T, D) for one string; as `Encoder.encode_tokens`."""
        return self._run(self._encode_tokens(texts, layers=layers, normalize=normalise))

    def encode_layers(self, texts: Texts, *, layers: str | int = "all", normalise: bool = False) -> Any:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string."""
        return self._run(self._encode_layers(texts, layers=layers, normalize=normalise))

    def predict(self, sentence: str | Sequence[str], *, n: int = 10, unknown: bool = False) -> dict[str, Any]:
        """Words for the blank ___: lists of {"word", "probability"} under "forward", "backward" and "both"."""
        return self._run(self._predict(sentence, top=n, unknown=unknown))

    def perplexity(self, texts: Texts, *, per_sentence: bool = False) -> dict[str, Any]:
        """How well the server's language model predicts these sentences, at most 256 of them."""
        return self._run(self._perplexity(texts, per_sentence=per_sentence))

    def apply(self, task: str, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Any]:
        """What a task model finds: for each text a list of records; for one string its own list."""
        return self._run(self._apply(task, texts))

    def models(self) -> list[str]:
        """The names of the server's models."""
        return self._run(self._models())

    def _run(self, call: _Call[A]) -> A:
        found: list[Any] = []
        for body in call.bodies:
            found += call.read(self._send(self._request(call.path, body)))
        return call.made(found)

    def _send(self, request: dict[str, Any]) -> httpx.Response:
        got: httpx.Response | httpx.TransportError
        for tried in count():
            try:
                got = self.http.request(**request)
            except httpx.TransportError as wrong:
                got = wrong
            if (seconds := self._delay(tried, got)) is None:
                break
            time.sleep(seconds)
        return self._checked(got)


class AsyncClient(_Calls):
    """`Client` for asyncio: the same calls, to be awaited."""

    def __init__(
        self, url: str, *, key: str | None = None, model: str | None = None, retries: int = 6, timeout: float = 120.0
    ) -> None:
        super().__init__(url, key=key, model=model, retries=retries, timeout=timeout)
        self.http = httpx.AsyncClient(**self.options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self.http.aclose()

    async def encode(
        self, texts: Texts, *, layers: str | int = "average", pooling: str = "mean", normalise: bool = False
    ) -> Vectors:
        """See `Client.encode`."""
        return await self._run(self._encode(texts, layers=layers, pooling=pooling, normalize=normalise))

    async def encode_tokens(self, texts: Texts, *, layers: str | int = "average", normalise: bool = False) -> Any:
        """See `Client.encode_tokens`."""
        return await self._run(self._encode_tokens(texts, layers=layers, normalize=normalise))

    async def encode_layers(self, texts: Texts, *, layers: str | int = "all", normalise: bool = False) -> Any:
        """See `Client.encode_layers`."""
        return await self._run(self._encode_layers(texts, layers=layers, normalize=normalise))

    async def predict(self, sentence: str | Sequence[str], *, n: int = 10, unknown: bool = False) -> dict[str, Any]:
        """See `Client.predict`."""
        return await self._run(self._predict(sentence, top=n, unknown=unknown))

    async def perplexity(self, texts: Texts, *, per_sentence: bool = False) -> dict[str, Any]:
        """See `Client.perplexity`."""
        return await self._run(self._perplexity(texts, per_sentence=per_sentence))

    async def apply(self, task: str, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Any]:
        """See `Client.apply`."""
        return await self._run(self._apply(task, texts))

    async def models(self) -> list[str]:
        """See `Client.models`."""
        return await self._run(self._models())

    async def _run(self, call: _Call[A]) -> A:
        found: list[Any] = []
        for body in call.bodies:
            found += call.read(await self._send(self._request(call.path, body)))
        return call.made(found)

    async def _send(self, request: dict[str, Any]) -> httpx.Response:
        got: httpx.Response | httpx.TransportError
        for tried in count():
            try:
                got = await self.http.request(**request)
            except httpx.TransportError as wrong:
                got = wrong
            if (seconds := self._delay(tried, got)) is None:
                break
            await asyncio.sleep(seconds)
        return self._checked(got)
