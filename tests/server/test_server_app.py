"""The routes over real HTTP: OpenAI's surface, errors, limits, operations."""

import asyncio
import base64
import io
import signal
import socket
import threading
import time
from collections.abc import Callable

import httpx
import numpy as np
import pytest
from fastapi import APIRouter
from running import Process, Running, same, until

from elmokit import Elmo
from elmokit.server import ServerSettings, Service, service
from elmokit.server.errors import LateError, OverloadedError
from elmokit.server.run import bind

TEXTS = ["The cat sat on the mat.", "", "A dog!", "the cat " * 40]


def floats(answer: httpx.Response) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    return np.array([row["embedding"] for row in answer.json()["data"]], dtype=np.float32)


def test_embeddings_are_those_of_encode(server: Running, encoder: Elmo) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": TEXTS, "model": "tiny"})
    assert same(floats(answer), encoder.encode(TEXTS, normalise=True))
    assert answer.json()["usage"]["prompt_tokens"] == sum(len(encoder.tokenizer.tokenize(t)) for t in TEXTS)
    assert answer.json()["model"] == "tiny"
    plain = server.http.post("/embeddings", json={"input": TEXTS, "layers": "top", "normalize": False})
    assert same(floats(plain), encoder.encode(TEXTS, layers="top"))
    numbered = server.http.post("/v1/embeddings", json={"input": TEXTS, "layers": 1, "normalize": False})
    assert same(floats(numbered), encoder.encode(TEXTS, layers=1))
    tokens = [["the", "cat"], ["sat"]]
    cut = server.http.post("/v1/embeddings", json={"tokens": tokens})
    assert same(floats(cut), encoder.encode(tokens, normalise=True))


def test_base64_is_little_endian_float32(server: Running, encoder: Elmo) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": "The cat.", "encoding_format": "base64"})
    found = np.frombuffer(base64.b64decode(answer.json()["data"][0]["embedding"]), dtype="<f4")
    assert same(found, encoder.encode("The cat.", normalise=True))


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"input": [[1, 2, 3]]}, 400, "check_embedding_ctx_length=False"),
        ({"input": [1, 2, 3]}, 400, "token ids"),
        ({"input": []}, 400, "empty list"),
        ({}, 400, "either 'input'"),
        ({"input": "a", "dimensions": 3}, 400, "not a shorter embedding"),
        ({"input": "a", "layers": "bottom"}, 400, "not understood"),
        ({"input": "a", "layers": "weights:1,2"}, 400, "the model has 3 layers"),
        ({"input": "a", "layers": "17"}, 400, "layers 0 to 2"),
        ({"input": "a", "model": "ada"}, 404, "this server has tiny"),
        ({"input": "a", "layers": "concat:0..2,0..2"}, 400, "name a layer twice"),
        ({"input": ["a"] * 2049}, 413, "at most 2,048"),
        ({"input": "a " * 8193}, 413, "8,193 tokens"),
        ({"input": "a", "pooling": "cls"}, 400, "pooling"),
        ({"input": 7}, 400, "input"),
    ],
)
def test_what_is_refused_is_told_why(server: Running, body: object, status: int, said: str) -> None:
    answer = server.http.post("/v1/embeddings", json=body)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a"] * 3, "layers": "all"}),
        ("/v1/tokens", {"input": "a b c", "layers": "all"}),
        ("/embed_all", {"inputs": "a b c", "layers": "all"}),
        ("/v1/compare", {"input": ["a a c"], "word": "a"}),
    ],
)
def test_answers_that_take_much_memory(
    server: Running, path: str, body: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * 3 * 3 * 12  # numbers of 4 bytes, 3 vectors of 3 layers
    monkeypatch.setattr(service, "MOST_BYTES", size)
    assert server.http.post(path, json=body).status_code == 200
    monkeypatch.setattr(service, "MOST_BYTES", size - 1)
    assert "MiB are sent" in (refused := server.http.post(path, json=body)).text
    assert refused.status_code == 413


def test_the_size_that_the_vectors_have_may_be_asked_for(server: Running, encoder: Elmo) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": "a", "dimensions": encoder.width})
    assert floats(answer).shape == (1, encoder.width)
    layered = {"input": "a", "layers": "all"}
    refused = server.http.post("/v1/embeddings", json={**layered, "dimensions": encoder.width})
    assert f"have {3 * encoder.width}," in refused.json()["error"]["message"]
    answer = server.http.post("/v1/embeddings", json={**layered, "dimensions": 3 * encoder.width})
    assert answer.status_code == 200


def test_a_router_of_another_package(start: Callable[..., Running]) -> None:
    router = APIRouter()

    @router.get("/")
    async def page() -> dict[str, str]:
        return {"thread": await server.service.cached("name", lambda: threading.current_thread().name)}

    server = start(routers=[router])
    assert server.http.get("/").json() == {"thread": "elmokit-model"}


def test_health_and_readiness(server: Running, encoder: Elmo) -> None:
    assert server.http.get("/health").status_code == 200
    assert server.http.get("/ready").status_code == 200
    assert Service({"tiny": encoder}).ready is False
    counted = 'elmokit_requests_total{method="GET",route="/health",status="200"}'
    until(lambda: counted in server.http.get("/metrics").text)  # a request is counted once its answer is sent


def test_a_job_that_nobody_waits_for_is_dropped(start: Callable[..., Running]) -> None:
    service = start().service
    release, ran = threading.Event(), []

    async def leave() -> None:
        first = asyncio.ensure_future(service.run(lambda: release.wait(60)))
        second = asyncio.ensure_future(service.run(lambda: ran.append(1), tokens=5))
        await asyncio.sleep(0.01)
        second.cancel()
        while service.model.held > 1:
            await asyncio.sleep(0.01)
        release.set()
        await first

    asyncio.run(leave())
    assert not ran


def test_the_queue_is_bounded_and_deadlines_hold(start: Callable[..., Running]) -> None:
    service = start(settings=ServerSettings(max_queue_tokens=100)).service
    release = threading.Event()

    async def crowd() -> None:
        first = asyncio.ensure_future(service.run(lambda: release.wait(60), tokens=90))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await service.run(lambda: 1, tokens=11)
        with pytest.raises(LateError):
            await service.run(lambda: 1, tokens=10, deadline=time.monotonic() + 0.05)
        release.set()
        assert await first

    asyncio.run(crowd())


def test_sigterm_ends_the_server_well(process: Callable[..., Process]) -> None:
    server = process()
    assert httpx.get(f"{server.url}/health", timeout=120).status_code == 200
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert "Traceback" not in server.said


def test_flags_by_the_environment(process: Callable[..., Process]) -> None:
    server = process(ELMOKIT_LOG_FORMAT="json", ELMOKIT_MAX_INPUTS="3")
    answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": ["a"] * 4}, timeout=120)
    assert answer.status_code == 413
    until(lambda: '"path": "/v1/embeddings"' in server.said)  # the line is written when the answer is on its way


def test_a_client_cannot_write_fields_of_the_log(start: Callable[..., Running]) -> None:
    log = io.StringIO()
    server = start(log=log)
    named = {"X-Forwarded-For": "9.9.9.9 GET /secret 200"}
    assert server.http.get("/none%0Asuch%20path", headers=named).status_code == 404
    until(lambda: "id=" in log.getvalue())
    (line,) = log.getvalue().splitlines()
    assert line.split(" ")[2:5] == ["GET", "/none\\nsuch%20path", "404"]


def test_answers_are_sent_without_delay() -> None:
    """Else a small answer, headers and body, would wait 40 ms for the client's system to acknowledge the headers."""

    async def connect() -> int:
        delays: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = writer.get_extra_info("socket")
            delays.set_result(there.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accept, sock=bind("127.0.0.1", 0)) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            found = await asyncio.wait_for(delays, 60)
            writer.close()
            await writer.wait_closed()
            return found

    assert asyncio.run(connect()) != 0
