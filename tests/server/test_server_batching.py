"""One model thread for all: what is batched, in which order, and what is dropped."""

import asyncio
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from running import Running, same, until

from elmokit import Elmo
from elmokit.layers import LayerChoice
from elmokit.server import ServerSettings
from elmokit.server.embedding import Embedding, Shaping
from elmokit.server.errors import OverloadedError
from elmokit.server.jobs import Call, Divisible, ModelThread

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "and", "every", "extraordinarily"]


def texts(n: int, *, seed: int, longest: int = 60) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(0, longest))) for _ in range(n)]


def hold(server: Running) -> threading.Event:
    """Keeps the model thread busy until the event is set, so that what comes meanwhile has to wait."""
    release, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        release.wait(120)

    async def job() -> None:
        await server.service.run(wait)

    threading.Thread(target=lambda: asyncio.run(job()), daemon=True).start()
    assert begun.wait(60)
    return release


def test_answers_do_not_depend_on_what_else_is_in_the_batch(start: Callable[..., Running], encoder: Elmo) -> None:
    server = start(settings=ServerSettings(max_batch_tokens=300))
    choices = [
        {"layers": layers, "pooling": "mean", "normalize": normalize}
        for layers in ("average", "top", "0", "concat:1,2", "weights:.2,.3,.5")
        for normalize in (True, False)
    ]
    asked = [(texts(int(n), seed=k), choices[k % len(choices)]) for k, n in enumerate([1, 40, 3, 17, 1, 2, 90, 5] * 4)]
    release = hold(server)
    with ThreadPoolExecutor(32) as pool:
        under_way = [pool.submit(server.http.post, "/v1/embeddings", json={"input": t, **c}) for t, c in asked]
        until(lambda: len(server.service.model.waiting) == len(asked))
        release.set()
        for (given, choice), answer in zip(asked, under_way, strict=True):
            found = [row["embedding"] for row in answer.result().json()["data"]]
            assert same(found, encoder.encode(given, layers=choice["layers"], normalise=choice["normalize"]))


@pytest.mark.parametrize("pooling", ["max", "first", "last"])
def test_other_poolings(server: Running, encoder: Elmo, pooling: str) -> None:
    given = ["the cat sat", "", "a dog"]
    body = {"input": given, "pooling": pooling, "normalize": False, "layers": "top"}
    found = [row["embedding"] for row in server.http.post("/v1/embeddings", json=body).json()["data"]]
    pools = {"max": lambda v: v.max(axis=0), "first": lambda v: v[0], "last": lambda v: v[-1]}
    rows = encoder.encode_tokens(given, layers="top")
    assert same(found, [pools[pooling](v) if len(v) else np.zeros(encoder.width) for v in rows])


def test_batches_hold_sentences_of_several_clients_and_no_more_than_their_budget(
    start: Callable[..., Running],
) -> None:
    server = start(settings=ServerSettings(max_batch_tokens=200))
    sizes: list[int] = []
    server.service.model.ran = lambda tokens, seconds: sizes.append(tokens)
    release = hold(server)
    with ThreadPoolExecutor(20) as pool:
        given = ["the cat sat on the mat ."] * 2
        under_way = [pool.submit(server.http.post, "/v1/embeddings", json={"input": given}) for _ in range(20)]
        until(lambda: len(server.service.model.waiting) == 20)
        release.set()
        assert all(answer.result().status_code == 200 for answer in under_way)
    batches = sizes[1:]  # the first is what held the thread
    assert sum(batches) == 20 * 2 * 9
    assert max(batches) <= 200
    assert len(batches) == 2


def test_a_large_request_does_not_hold_up_a_small_one(start: Callable[..., Running], encoder: Elmo) -> None:
    service = start(settings=ServerSettings(max_batch_tokens=100)).service
    order: list[str] = []
    shaping = Shaping(LayerChoice.parse("average"))
    later = time.monotonic() + 600

    def job(name: str, n: int) -> Embedding:
        sentences = [encoder.tokenizer.tokenize("the cat sat")] * n
        made = Embedding(encoder, sentences, shaping, deadline=later, patience=60)
        made.future.add_done_callback(lambda _: order.append(name))
        return made

    gate = threading.Event()

    async def wait() -> None:
        await service.run(lambda: gate.wait(60))

    thread = threading.Thread(target=lambda: asyncio.run(wait()))
    thread.start()
    until(lambda: service.model.held == 1 and not service.model.waiting)
    jobs = [job("large", 500), *(job(f"small {k}", 3) for k in range(3))]
    for each in jobs:
        service.model.submit(each)
    gate.set()
    assert len(jobs[0].future.result(60)) == 500
    assert order == ["small 0", "small 1", "small 2", "large"]
    thread.join(60)
    assert service.model.held == 0


def test_jobs_of_several_models_all_have_their_turn(encoder: Elmo) -> None:
    """Those of one model run together; those of others keep their places and come next."""
    batches: list[list[str]] = []

    class Words(Divisible):
        def __init__(self, name: str, place: str) -> None:
            super().__init__(2, deadline=time.monotonic() + 600, patience=60)
            self.name, self.place, self.pieces = name, place, deque(["ab"])

        def result(self) -> str:
            return self.name

    thread = ModelThread(run=lambda work, budget: batches.append([job.name for job, _ in work]), bound=1000, budget=100)
    thread.start()
    gate = threading.Event()
    thread.submit(Call(lambda: gate.wait(60), 1, deadline=time.monotonic() + 600, patience=60))
    jobs = [Words(f"{place}{k}", place) for k, place in enumerate("abcab")]
    for job in jobs:
        thread.submit(job)
    gate.set()
    assert [job.future.result(60) for job in jobs] == [job.name for job in jobs]
    assert batches == [["a0", "a3"], ["b1", "b4"], ["c2"]]
    thread.close()
    thread.thread.join(60)
    assert thread.held == 0


def test_a_client_that_goes_away_is_dropped_before_its_turn(start: Callable[..., Running]) -> None:
    server = start()
    release = hold(server)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/embeddings", json={"input": "the cat"}, timeout=1.0)
    until(lambda: server.service.model.held == 1)
    words = server.app.state.metrics
    release.set()
    until(lambda: server.service.model.held == 0)
    assert server.http.post("/v1/embeddings", json={"input": "the cat"}).status_code == 200
    assert 'route="/v1/embeddings",status="499"} 1.0' in words.text().decode()


def test_a_full_queue_answers_at_once_and_says_when_to_come_again(start: Callable[..., Running]) -> None:
    server = start(settings=ServerSettings(max_queue_tokens=50))
    release = hold(server)
    answer = server.http.post("/v1/embeddings", json={"input": "the cat " * 30})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert server.http.post("/embed", json={"inputs": "the cat " * 30}).json()["error_type"] == "overloaded"
    release.set()
    until(lambda: server.service.model.held == 0)
    large = server.http.post("/v1/embeddings", json={"input": "the cat " * 30})
    assert large.status_code == 200  # larger than the queue, but alone


def test_a_full_queue_refuses_before_a_body_is_read(start: Callable[..., Running]) -> None:
    server = start(settings=ServerSettings(max_queue_tokens=50))
    parts = urlsplit(server.url)
    release = hold(server)
    with ThreadPoolExecutor(1) as pool, socket.create_connection((parts.hostname, parts.port), timeout=120) as raw:
        waiting = pool.submit(server.http.post, "/v1/embeddings", json={"tokens": [["the"] * 46]})
        until(lambda: server.service.model.held == 49)
        small = {"tokens": [["the"]]}
        assert server.http.post("/v1/embeddings", json=small).status_code == 429  # read, counted, refused
        head = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        raw.sendall(b"POST /v1/embeddings HTTP/1.1\r\n" + head % 100_000 + b"{")
        said = raw.recv(4096)
        assert said.startswith(b"HTTP/1.1 429")
        assert b"retry-after" in said
        assert server.http.get("/health").status_code == 200
        assert server.http.post("/tokenize", json={"inputs": "the cat"}).status_code == 200  # needs no model
        release.set()
        assert waiting.result().status_code == 200
        until(lambda: server.service.model.held == 0)
        raw.sendall(b" " * 99_999)  # the rest of the body is read past, and the connection lives on
        body = json.dumps(small).encode()
        raw.sendall(b"POST /v1/embeddings HTTP/1.1\r\n" + head % len(body) + body)
        said = raw.recv(4096)
        assert said.startswith(b"HTTP/1.1 200"), said
    assert 'elmokit_requests_total{method="POST",route="/v1/embeddings",status="429"} 2.0' in (
        server.http.get("/metrics").text
    )


class Counted(Divisible):
    """A job of one piece."""

    place = "here"

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens, deadline=time.monotonic() + 600, patience=600)
        self.pieces = deque([range(tokens)])

    def result(self) -> int:
        return self.tokens


def test_a_turn_is_not_ended_by_a_few_tokens_or_a_full_batch() -> None:
    ran: list[list[int]] = []

    def run(work: list[tuple[Divisible, list[range]]], budget: int) -> None:
        ran.append([sum(map(len, pieces)) for _, pieces in work])

    thread = ModelThread(run=run, bound=100_000, budget=100)  # a turn is 25 tokens
    thread.start()
    release, begun = threading.Event(), threading.Event()
    thread.submit(Call(lambda: begun.set() or release.wait(120), 1, deadline=time.monotonic() + 600, patience=600))
    assert begun.wait(60)
    jobs = [Counted(tokens) for tokens in (36, 36, 36, 36, 60)]
    for job in jobs:
        job.pieces = deque(range(3) for _ in range(job.tokens // 3))
        thread.submit(job)
    release.set()
    assert [job.future.result(60) for job in jobs] == [36, 36, 36, 36, 60]
    assert ran == [[36, 36, 27], [9, 36, 54], [6]]
    thread.close()


def test_the_queue_is_bounded_in_time() -> None:
    thread = ModelThread(run=lambda work, budget: time.sleep(0.05), bound=100_000, budget=100, seconds=0.1)
    thread.start()
    first = Counted(10)
    thread.submit(first)
    first.future.result(60)
    assert thread._pace == {}  # a small batch says nothing of full ones
    second = Counted(100)
    thread.submit(second)
    second.future.result(60)
    assert thread._pace["here"] >= 0.0005
    release = threading.Event()
    thread.submit(Call(lambda: release.wait(120), 1, deadline=time.monotonic() + 600, patience=600))
    accepted: list[Counted] = []

    def crowd() -> None:
        for _ in range(100):
            job = Counted(20)
            thread.submit(job)
            accepted.append(job)

    with pytest.raises(OverloadedError, match="would wait"):
        crowd()
    assert 1 <= len(accepted) <= 11  # 0.01 seconds each, or more on a slow machine
    with pytest.raises(OverloadedError):
        thread.check_door()
    release.set()
    assert [job.future.result(60) for job in accepted] == [20] * len(accepted)
    until(lambda: thread.held == 0)
    assert thread.wait == 0
    thread.check_door()
    assert not thread.full
    thread.close()


def test_a_request_ends_at_its_deadline(start: Callable[..., Running]) -> None:
    server = start(settings=ServerSettings(timeout=100))
    release = hold(server)
    began = time.monotonic()
    answer = server.http.post("/v1/embeddings", json={"input": "the cat"}, headers={"X-Request-Timeout": "0.3"})
    assert answer.status_code == 504
    assert 0.25 < time.monotonic() - began < 60
    assert server.http.get("/health", headers={"X-Request-Timeout": "soon"}).status_code == 400
    release.set()


def test_times_and_tokens_are_told(server: Running) -> None:
    answer = server.http.post("/v1/embeddings", json={"input": "the cat"}, headers={"X-Request-Id": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    assert answer.headers["x-compute-tokens"] == "2"
    assert float(answer.headers["x-inference-time"]) > 0
    assert float(answer.headers["x-total-time"]) >= float(answer.headers["x-queue-time"])
    assert len(server.http.get("/health", headers={"X-Request-Id": "a b"}).headers["x-request-id"]) == 32
