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
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from elmokit.errors import ElmokitError, InputError, MissingExtraError

try:
    import httpx
except ModuleNotFoundError:
    raise MissingExtraError("the client needs httpx, which is not installed", extra="client") from None

__all__ = ["AsyncClient", "Client", "ServerError"]

Vectors = NDArray[np.float32]
Texts = str | Sequence[str] | Sequence[Sequence[str]]
AGAIN = (429, 503)
LOST = (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)  # which are worth another try
LONGEST = 30.0  # seconds between two tries
AT_ONCE = 256  # texts in one request


class ServerError(ElmokitError):
    """The server's answer was an error. `status` is its number, `code` its word for programs."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(f"the server answered {status}: {message}")
        self.status, self.code = status, code


class _Calls:
    """What a call sends, and what it makes of the answer."""

    def __init__(self, url: str, *, key: str | None, model: str | None, retries: int, timeout: float) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"url is {url!r}; expected one such as http://localhost:8000")
        self.model, self.retries = model, retries
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.options: dict[str, Any] = {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout}

    def parts(self, texts: Texts, **options: Any) -> Iterator[dict[str, Any]]:
        """The bodies of the requests that carry these texts."""
        given = _listed(texts)
        field = "input" if all(isinstance(text, str) for text in given) else "tokens"
        for few in _parts(given):
            yield self.body(**{field: few}, **options)

    def only(self, texts: Texts, **options: Any) -> dict[str, Any]:
        """The same where the answer cannot be put together from several."""
        bodies = list(self.parts(texts, **options))
        if len(bodies) != 1:
            raise InputError(f"{len(_listed(texts)):,} texts were given; expected 1 to {AT_ONCE}")
        return bodies[0]

    def body(self, **fields: Any) -> dict[str, Any]:
        named = {} if self.model is None else {"model": self.model}
        return {**named, **{name: value for name, value in fields.items() if value is not None}}

    def delay(self, tried: int, answer: "httpx.Response | None") -> float | None:
        """Seconds to wait before the next try; None: there is none."""
        if tried >= self.retries or (answer is not None and answer.status_code not in AGAIN):
            return None
        asked = 0.0
        with suppress(ValueError):
            asked = float(answer.headers.get("retry-after", 0)) if answer is not None else 0.0
        least: float = 0.1 * 2**tried
        return min(max(asked, least) * random.uniform(1, 1.25), LONGEST)


def _listed(texts: Any) -> list[Any]:
    return [texts] if isinstance(texts, str) else [text if isinstance(text, str) else list(text) for text in texts]


def _parts(given: list[Any]) -> Iterator[list[Any]]:
    """As much as one request carries."""
    return (given[start : start + AT_ONCE] for start in range(0, len(given), AT_ONCE))


def _checked(answer: "httpx.Response") -> "httpx.Response":
    if answer.is_success:
        return answer
    message, code = answer.text[:200], None
    with suppress(ValueError, AttributeError, TypeError):
        told = answer.json()["error"]
        message, code = (told, None) if isinstance(told, str) else (told["message"], told["code"])
    raise ServerError(answer.status_code, message, code)


def _vectors(answer: "httpx.Response") -> list[Vectors]:
    """The arrays of a safetensors answer, in order."""
    tensors = load(answer.content)
    return [tensors[str(number)] for number in range(len(tensors))]


def _rows(answer: "httpx.Response") -> list[Vectors]:
    import base64

    return [
        np.frombuffer(base64.b64decode(row["embedding"]), dtype="<f4").astype(np.float32)
        for row in answer.json()["data"]
    ]


def _stacked(rows: list[Vectors], texts: Texts) -> Vectors:
    if isinstance(texts, str):
        return rows[0]
    return np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)


def _apart(vectors: Vectors) -> Vectors:
    return vectors if vectors.ndim == 3 else vectors[None]


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
        options = {"layers": layers, "pooling": pooling, "normalize": normalise, "encoding_format": "base64"}
        rows = [row for body in self.parts(texts, **options) for row in _rows(self._post("/v1/embeddings", body))]
        return _stacked(rows, texts)

    def encode_tokens(self, texts: Texts, *, layers: str | int = "average", normalise: bool = False) -> Any:
        """One vector per token: a list of (T, D), or (T, D) for one string; as `Encoder.encode_tokens`."""
        options = {"layers": layers, "normalize": normalise, "encoding_format": "safetensors"}
        found = [v for body in self.parts(texts, **options) for v in _vectors(self._post("/v1/tokens", body))]
        return found[0] if isinstance(texts, str) else found

    def encode_layers(self, texts: Texts, *, layers: str | int = "all", normalise: bool = False) -> Any:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string."""
        found = self.encode_tokens(texts, layers=layers, normalise=normalise)
        return _apart(found) if isinstance(texts, str) else [_apart(vectors) for vectors in found]

    def predict(self, sentence: str | Sequence[str], *, n: int = 10, unknown: bool = False) -> dict[str, Any]:
        """Words for the blank ___: lists of {"word", "probability"} under "forward", "backward" and "both"."""
        field = {"input": sentence} if isinstance(sentence, str) else {"tokens": list(sentence)}
        found: dict[str, Any] = self._post("/v1/predict", self.body(**field, top=n, unknown=unknown)).json()
        return found

    def perplexity(self, texts: Texts, *, per_sentence: bool = False) -> dict[str, Any]:
        """How well the server's language model predicts these sentences, at most 256 of them."""
        body = self.only(texts, per_sentence=per_sentence)
        found: dict[str, Any] = self._post("/v1/perplexity", body).json()
        return found

    def apply(self, task: str, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Any]:
        """What a task model finds: for each text a list of records; for one string its own list."""
        bodies = ({"input": few} for few in _parts(_listed(texts)))
        found: list[Any] = [one for body in bodies for one in self._post(f"/v1/tasks/{task}", body).json()["data"]]
        return found[0] if isinstance(texts, str) else found

    def models(self) -> list[str]:
        """The names of the server's models."""
        return [row["id"] for row in self._send("GET", "/v1/models").json()["data"]]

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._send("POST", path, json=body)

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        tried = 0
        while True:
            answer: httpx.Response | None = None
            try:
                answer = self.http.request(method, path, **options)
            except httpx.TransportError as wrong:
                if (seconds := self.delay(tried, None) if isinstance(wrong, LOST) else None) is None:
                    raise ServerError(0, f"{wrong or type(wrong).__name__} ({self.http.base_url})") from wrong
            else:
                if (seconds := self.delay(tried, answer) if not answer.is_success else None) is None:
                    return _checked(answer)
            time.sleep(seconds)
            tried += 1


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
        options = {"layers": layers, "pooling": pooling, "normalize": normalise, "encoding_format": "base64"}
        answers = [await self._post("/v1/embeddings", body) for body in self.parts(texts, **options)]
        return _stacked([row for answer in answers for row in _rows(answer)], texts)

    async def encode_tokens(self, texts: Texts, *, layers: str | int = "average", normalise: bool = False) -> Any:
        """See `Client.encode_tokens`."""
        options = {"layers": layers, "normalize": normalise, "encoding_format": "safetensors"}
        answers = [await self._post("/v1/tokens", body) for body in self.parts(texts, **options)]
        found = [vectors for answer in answers for vectors in _vectors(answer)]
        return found[0] if isinstance(texts, str) else found

    async def encode_layers(self, texts: Texts, *, layers: str | int = "all", normalise: bool = False) -> Any:
        """See `Client.encode_layers`."""
        found = await self.encode_tokens(texts, layers=layers, normalise=normalise)
        return _apart(found) if isinstance(texts, str) else [_apart(vectors) for vectors in found]

    async def predict(self, sentence: str | Sequence[str], *, n: int = 10, unknown: bool = False) -> dict[str, Any]:
        """See `Client.predict`."""
        field = {"input": sentence} if isinstance(sentence, str) else {"tokens": list(sentence)}
        answer = await self._post("/v1/predict", self.body(**field, top=n, unknown=unknown))
        found: dict[str, Any] = answer.json()
        return found

    async def perplexity(self, texts: Texts, *, per_sentence: bool = False) -> dict[str, Any]:
        """See `Client.perplexity`."""
        body = self.only(texts, per_sentence=per_sentence)
        found: dict[str, Any] = (await self._post("/v1/perplexity", body)).json()
        return found

    async def apply(self, task: str, texts: str | Sequence[str] | Sequence[tuple[str, str]]) -> list[Any]:
        """See `Client.apply`."""
        answers = [await self._post(f"/v1/tasks/{task}", {"input": few}) for few in _parts(_listed(texts))]
        found: list[Any] = [one for answer in answers for one in answer.json()["data"]]
        return found[0] if isinstance(texts, str) else found

    async def models(self) -> list[str]:
        """See `Client.models`."""
        return [row["id"] for row in (await self._send("GET", "/v1/models")).json()["data"]]

    async def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return await self._send("POST", path, json=body)

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        tried = 0
        while True:
            answer: httpx.Response | None = None
            try:
                answer = await self.http.request(method, path, **options)
            except httpx.TransportError as wrong:
                if (seconds := self.delay(tried, None) if isinstance(wrong, LOST) else None) is None:
                    raise ServerError(0, f"{wrong or type(wrong).__name__} ({self.http.base_url})") from wrong
            else:
                if (seconds := self.delay(tried, answer) if not answer.is_success else None) is None:
                    return _checked(answer)
            await asyncio.sleep(seconds)
            tried += 1
