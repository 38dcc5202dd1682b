"""Before and after every request: its id, its key, its size, its deadline, its line in the log and in the metrics."""

import asyncio
import hashlib
import hmac
import json
import math
import re
import sys
import time
import traceback
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import orjson

from elmokit.errors import InputError
from elmokit.server.errors import ApiError, GoneError
from elmokit.server.metrics import Metrics
from elmokit.server.service import Service, Timing, timing

REQUEST_ID = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)
OPEN = ("/health", "/ready", "/ping")  # for load balancers, which have no key
TEI_PATHS = ("/", "/embed", "/embed_all", "/tokenize", "/similarity", "/info")
MODEL_PATHS = frozenset(  # where a full queue is told of before the body is read
    f"/{path}"
    for path in (
        *("v1/embeddings", "embeddings", "v1/tokens", "v1/predict", "v1/perplexity", "v1/compare"),
        *("embed", "", "embed_all", "similarity"),
    )
)
TASK, TASK_PATH = "/v1/tasks/{name}", "/v1/tasks/"  # as well
UNKNOWN = "(none)"  # the route of a request that no route takes

Headers = list[tuple[bytes, bytes]]


class Keys:
    """The keys that clients may use, as digests; all are compared, in constant time."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.digests = [_digest(key.encode()) for key in keys]

    @classmethod
    def read(cls, path: str) -> "Keys":
        """One key per line; blank lines and lines that begin with # are left out."""
        if not path:
            return cls([])
        try:
            lines = [line.strip() for line in Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()]
        except (OSError, ValueError) as wrong:
            raise InputError(f"{path}: the keys cannot be read ({wrong})") from None
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise InputError(f"{path}: holds no key; expected one per line")
        return cls(keys)

    def allow(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request with these headers may come in: Authorization: Bearer KEY, or X-Api-Key: KEY."""
        if not self.digests:
            return True
        scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        given = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        digest = _digest(given)
        return bool(sum([hmac.compare_digest(digest, known) for known in self.digests]))


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=32).digest()


class Front:
    """ASGI middleware around the whole app."""

    def __init__(self, app: Any, *, service: Service, metrics: Metrics, log: TextIO | None = None) -> None:
        self.app, self.service, self.metrics = app, service, metrics
        self.settings = service.settings
        self.keys = Keys.read(self.settings.api_key_file)
        self.log = log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its answer."""

    def __init__(self, front: Front, scope: Any, receive: Any, send: Any) -> None:
        self.front, self.scope, self.send = front, scope, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.began = time.monotonic()
        self.status, self.started, self.sent = 0, False, 0
        self.timing = Timing()
        given = self.headers.get(b"x-request-id", b"")
        self.id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex.encode()
        self.body = _Body(receive, front.settings.max_body)

    async def run(self) -> None:
        token = timing.set(self.timing)
        self.front.metrics.under_way.inc()
        try:
            self._set_deadline()
            self._check()
            await self._watched()
        except ApiError as error:
            await self._fail(error)
        except Exception as error:  # a bug, or a model that failed; never the reason why a connection breaks
            print(f"elmokit: request {self.id.decode()} failed", file=sys.stderr)
            traceback.print_exception(error)
            status = 424 if self.scope["path"] in TEI_PATHS else 500
            message = "the server failed; its log says why"
            await self._fail(ApiError(status, message, kind="server_error", code="internal"))
        finally:
            timing.reset(token)
            self.front.metrics.under_way.dec()
            self._note()

    def _set_deadline(self) -> None:
        """That of the server, or the shorter one that the client asks for in seconds: X-Request-Timeout."""
        seconds = self.front.settings.timeout
        if given := self.headers.get(b"x-request-timeout"):
            try:
                asked = float(given)
            except ValueError:
                asked = 0.0
            if not 0 < asked < 1e6:
                raise ApiError(400, f"X-Request-Timeout is {given.decode('latin-1')!r}; expected seconds above 0")
            seconds = min(seconds, asked)
        self.timing.timeout, self.timing.ends = seconds, self.began + seconds
        self.body.seconds, self.body.ends = seconds, self.timing.ends

    def _check(self) -> None:
        if (
            self.scope["path"] not in OPEN
            and self.scope["method"] != "OPTIONS"
            and not self.front.keys.allow(self.headers)
        ):
            raise ApiError(
                401,
                "no key of this server was given; send  Authorization: Bearer KEY",
                kind="authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        length = self.headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.body.most:
            raise self.body.too_large(int(length))
        if self.scope["method"] == "POST" and _of_model(self.scope["path"]):
            self.front.service.model.check_door()

    async def _watched(self) -> None:
        """Runs the app, and cancels it when the client goes away after it has sent its request."""
        work = asyncio.ensure_future(self.front.app(self.scope, self.body.receive, self._send))
        gone = asyncio.ensure_future(self.body.gone())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not self.started:
                work.cancel()
                try:
                    await work
                except asyncio.CancelledError:
                    raise GoneError from None
            await work
        finally:
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message = {**message, "headers": [*message["headers"], *self._told()]}
        elif message["type"] == "http.response.body":
            self.sent += len(message.get("body", b""))
        await self.send(message)

    def _told(self) -> Headers:
        """The request's id and its times, in milliseconds, under the names that text-embeddings-inference uses."""
        told, total = self.timing, time.monotonic() - self.began
        headers = [(b"x-request-id", self.id)]
        if told.texts:
            headers += [
                (b"x-compute-type", self.front.service.encoder().device.type.encode()),
                (b"x-compute-characters", str(told.characters).encode()),
                (b"x-compute-tokens", str(told.tokens).encode()),
                (b"x-tokenization-time", _ms(told.cutting)),
                (b"x-queue-time", _ms(told.queue)),
                (b"x-inference-time", _ms(told.model)),
                (b"x-compute-time", _ms(told.cutting + told.model)),
            ]
        headers.append((b"x-total-time", _ms(total)))
        length = self.headers.get(b"content-length", b"0")
        endless = b"transfer-encoding" in self.headers or not length.isdigit() or int(length) > self.body.most
        if self.front.service.stopping or (endless and not self.body.complete):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        return headers

    async def _fail(self, error: ApiError) -> None:
        self.status = error.status
        if self.started or isinstance(error, GoneError):
            return
        tei = self.scope["path"] in TEI_PATHS
        content = orjson.dumps(error.tei if tei else error.openai)
        headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        try:
            await self._send({"type": "http.response.start", "status": error.status, "headers": headers})
            await self._send({"type": "http.response.body", "body": content})
        except OSError:
            self.status = 499

    def _note(self) -> None:
        total = time.monotonic() - self.began
        route = self.scope.get("route")
        path = getattr(route, "path", None) or _of_model(self.scope["path"]) or UNKNOWN
        self.front.metrics.note(path, self.scope["method"], self.status, self.timing, total)
        if self.front.log is None:
            return
        client = self.scope.get("client")
        told = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": self.id.decode(),
            "client": client[0] if client else "",
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": self.status,
            "bytes": self.sent,
            "texts": self.timing.texts,
            "tokens": self.timing.tokens,
            "total_ms": round(total * 1e3, 2),
            "queue_ms": round(self.timing.queue * 1e3, 2),
            "model_ms": round(self.timing.model * 1e3, 2),
        }
        if self.front.settings.log_format == "json":
            line = json.dumps(told)
        else:
            # What a client chose (a proxy's header may name it) must neither begin a line of the log nor a field of it.
            who, path = (json.dumps(told[name])[1:-1].replace(" ", "%20") for name in ("client", "path"))
            line = (
                f"{told['time']} {who} {told['method']} {path} {told['status']} {told['total_ms']} ms "
                f"(queue {told['queue_ms']}, model {told['model_ms']}) {told['tokens']} tokens id={told['id']}"
            )
        print(line, file=self.front.log, flush=True)


class _Body:
    """The request's body on its way in: counted, and watched for the client's leaving."""

    def __init__(self, receive: Any, most: int) -> None:
        self._receive, self.most = receive, most
        self.size, self.complete = 0, False
        self.seconds = self.ends = math.inf  # that it may take, and of time.monotonic()
        self._complete, self._gone = asyncio.Event(), asyncio.Event()

    async def receive(self) -> Any:
        if self.complete:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        try:
            async with asyncio.timeout(max(self.ends - time.monotonic(), 0)):
                message = await self._receive()
        except TimeoutError:
            told = f"the body has not come within {self.seconds:g} seconds"
            raise ApiError(408, told, code="request_timeout", headers={"connection": "close"}) from None
        if message["type"] == "http.disconnect":
            self._end()
            raise GoneError
        self.size += len(message.get("body", b""))
        if self.size > self.most:
            raise self.too_large(self.size)
        if not message.get("more_body", False):
            self._end()
        return message

    async def gone(self) -> None:
        """Ends when the client has left, after its body has come in."""
        await self._complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()

    def too_large(self, size: int) -> ApiError:
        return ApiError(
            413, f"the body has {size:,} bytes or more; at most {self.most:,} are read", code="request_too_large"
        )

    def _end(self) -> None:
        self.complete = True
        self._complete.set()


def _of_model(path: str) -> str | None:
    """The route, if it is one for the model."""
    return path if path in MODEL_PATHS else TASK if path.startswith(TASK_PATH) else None


def _ms(seconds: float) -> bytes:
    return f"{seconds * 1e3:.2f}".encode()
