"""What goes wrong: signals, dead workers, a hanging thread, clients that leave, send slowly or send rubbish."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from running import Process, Running, until

from elmokit.errors import ElmokitError
from elmokit.server import ServerSettings, protocol, serve


def raw(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=120)


def test_sigterm_under_load_loses_no_accepted_request(process: Callable[..., Process]) -> None:
    server = process()
    answered, lost, ended = [], [], threading.Event()

    def client(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=120) as http:
            while not ended.is_set():
                try:
                    answer = http.post("/v1/embeddings", json={"input": ["the cat sat"] * 20})
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    return  # never accepted
                except httpx.HTTPError as error:
                    lost.append(error)
                    return
                answered.append(answer.status_code)

    with ThreadPoolExecutor(8) as pool:
        under_way = [pool.submit(client, number) for number in range(8)]
        until(lambda: len(answered) > 40)
        server.popen.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        ended.set()
        for one in under_way:
            one.result(120)
    assert not lost
    assert set(answered) <= {200, 503}
    assert "Traceback" not in server.said


def test_a_second_signal_ends_at_once(process: Callable[..., Process]) -> None:
    server = process()
    with raw(server.url) as slow:
        slow.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")  # under way, for long
        until(lambda: httpx.get(f"{server.url}/health", timeout=120).status_code == 200)
        server.popen.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in server.said)
        server.popen.send_signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_parent_and_its_workers_loses_no_accepted_request(
    process: Callable[..., Process], number: signal.Signals
) -> None:
    """As of Ctrl-C in a terminal, and of systemd. The workers hear it, and then their parent once more."""
    server = process("--workers", 2)
    body = b'{"input": "the cat sat"}'
    with raw(server.url) as slow:
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        slow.sendall(head + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body))
        assert slow.recv(100).startswith(b"HTTP/1.1 100")  # a worker has it under way
        os.killpg(server.popen.pid, number)
        until(lambda: server.said.count("stopping") == 2)
        time.sleep(0.2)  # for the second signal
        slow.sendall(body)
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
    assert server.wait() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_worker_that_is_killed_is_replaced(process: Callable[..., Process]) -> None:
    server = process("--workers", 2)

    def workers() -> set[int]:
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(server.popen.pid)], capture_output=True, text=True)
        return {int(pid) for pid in listed.stdout.split()}

    first = workers()
    assert len(first) == 2
    for number, name in ((signal.SIGKILL, "SIGKILL"), (40, "signal 40")):  # not all signals have a name
        victim = min(workers())
        os.kill(victim, number)
        until(lambda gone=victim: len(workers() - {gone}) == 2)  # type: ignore[misc]
        assert f"ended by {name}; starting another" in server.said
    for _ in range(10):
        answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": "the cat"}, timeout=120)
        assert answer.status_code == 200
    counted = httpx.get(f"{server.url}/metrics", timeout=120).text
    assert 'elmokit_requests_total{method="POST",route="/v1/embeddings",status="200"} 10.0' in counted
    server.popen.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not workers()


def test_a_thread_that_hangs_makes_health_fail(start: Callable[..., Running]) -> None:
    server = start(settings=ServerSettings(stuck_seconds=0.5))
    release = threading.Event()
    encoder = server.service.encoder()
    stack = type(encoder.placed()).stack

    def hang(self: object, sentences: object) -> object:
        release.wait(120)
        return stack(self, sentences)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(encoder.placed()), "stack", hang)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(server.http.post, "/v1/embeddings", json={"input": "the cat"})
            until(lambda: server.http.get("/health").status_code == 503)
            assert "busy with one batch" in server.http.get("/health").json()["error"]["message"]
            release.set()
            assert answer.result().status_code == 200
    until(lambda: server.http.get("/health").status_code == 200)
    assert ServerSettings().stuck_seconds < 10


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_dead_makes_health_fail(start: Callable[..., Running]) -> None:
    server = start()

    def die() -> None:
        server.service.model._gather = lambda: (_ for _ in ()).throw(SystemExit)  # type: ignore[method-assign]

    asyncio.run(server.service.run(die))
    assert server.http.post("/v1/embeddings", json={"input": "a"}).status_code == 503
    until(lambda: server.http.get("/health").status_code == 503)
    assert server.http.post("/v1/embeddings", json={"input": "a"}).status_code == 503


def test_a_model_that_fails_is_a_500_and_the_server_lives_on(
    start: Callable[..., Running], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start()
    encoder = server.service.encoder()

    def fail(self: object, sentences: object) -> object:
        raise RuntimeError("broken")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(encoder.placed()), "stack", fail)
        answer = server.http.post("/v1/embeddings", json={"input": "the cat"})
        assert answer.status_code == 500
        assert "broken" not in answer.text
        assert server.http.post("/embed", json={"inputs": "the cat"}).status_code == 424
    assert "RuntimeError: broken" in capsys.readouterr().err
    assert server.http.post("/v1/embeddings", json={"input": "the cat"}).status_code == 200


BODIES: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'{"input": "\xff\xfe"}',
    b'{"input": "\\ud800"}',
    b'{"input": NaN}',
    b"[" * 100_000,
    b'{"input": ' + b"[" * 500 + b"]" * 500 + b"}",
    b'{"a":' * 500 + b"1" + b"}" * 500,
    b'{"input": 1' + b"0" * 5000 + b"}",
    b'{"input": "a", "layers": "' + b"1" * 100_000 + b'"}',
    b'{"input": "a", "layers": "concat:' + b",".join([b"1"] * 300) + b'"}',
    b'{"input": "a", "layers": "weights:nan,inf,1e400"}',
    b'{"input": {"input": "a"}}',
    b'{"input": "a", "dimensions": 1e300}',
    '{"input": "\u0000\u200b\ufeff\U0001f600"}'.encode(),
]


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/tokens", "/embed", "/v1/predict", "/v1/compare"])
def test_bad_bodies(full: Running, path: str) -> None:
    for body in BODIES:
        answer = full.http.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 400, 413, 422), (body[:60], answer.text)
        assert answer.json()
    assert full.http.get("/health").status_code == 200


PATHS = [
    *("/v1/embeddings", "/v1/tokens", "/embed", "/embed_all", "/", "/tokenize", "/similarity", "/v1/predict"),
    *("/v1/perplexity", "/v1/compare", "/v1/tasks/tagger", "/v1/senses/new", "/v1/neighbours/new", "/v1/drift"),
]


@pytest.mark.parametrize("number", [1_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_bodies(full: Running, number: int) -> None:
    rng = random.Random(7)
    seeds = [
        b'{"input": ["the cat", "a"], "layers": "top", "normalize": true}',
        b'{"inputs": "a"}',
        b'{"word": "bank"}',
    ]

    def body() -> bytes:
        content = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(content) + 1)
            content[at : at + rng.randrange(3)] = rng.choice(
                [b"", b'"', b"[", b"}", b"\xff", b"1", b"\\u", rng.randbytes(3)]
            )
        return bytes(content)

    asked = [(rng.choice(PATHS), body()) for _ in range(number)]

    def send(some: list[tuple[str, bytes]]) -> set[int]:
        found = set()
        with httpx.Client(base_url=full.url, timeout=120) as http:
            for path, content in some:
                answer = http.post(path, content=content, headers={"Content-Type": "application/json"})
                assert answer.status_code < 500, (path, content, answer.text)
                found.add(answer.status_code)
        return found

    with ThreadPoolExecutor(4) as pool:
        found = set().union(*pool.map(send, [asked[k::4] for k in range(4)]))
    assert 200 in found
    assert 400 in found
    assert full.http.get("/health").status_code == 200


def test_bodies_that_are_too_large(start: Callable[..., Running]) -> None:
    server = start(settings=ServerSettings(max_body=100_000))
    with raw(server.url) as honest:
        honest.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n{")
        assert honest.recv(1000).startswith(b"HTTP/1.1 413")  # before they are sent
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with raw(server.url) as chunked:
        head = (
            b"POST /embed HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
        )
        chunked.sendall(head)
        received = b""
        try:
            for _ in range(3200):  # 100 MB
                chunked.sendall(chunk)
            received = chunked.recv(1000)
        except OSError:
            received = received or _rest(chunked)
    assert received == b"" or received.startswith(b"HTTP/1.1 413")
    assert server.http.get("/health").status_code == 200


def test_headers_without_end(start: Callable[..., Running]) -> None:
    server = start()
    for line in (b"X-Long: " + b"a" * 1000, b"X: a\r\n" * 100):
        with raw(server.url) as endless:
            endless.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\n")
            received = b""
            try:
                for _ in range(2000):
                    endless.sendall(line)
                received = endless.recv(1000)
            except OSError:
                received = _rest(endless)
        assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert server.http.get("/health").status_code == 200
    with raw(server.url) as several:  # the bound is for each request, not for the connection
        for _ in range(5):
            several.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 30_000 + b"\r\n\r\n")
            assert several.recv(4096).startswith(b"HTTP/1.1 200")


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except OSError:
        return b""


def test_slow_senders_and_disconnects_hold_nobody_up(start: Callable[..., Running]) -> None:
    server = start()
    slow = [raw(server.url) for _ in range(50)]
    try:
        for k, connection in enumerate(slow):
            connection.sendall(
                b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"{" * (k % 3)
            )
        assert server.http.post("/v1/embeddings", json={"input": "the cat"}).status_code == 200
    finally:
        for connection in slow:
            connection.close()
    assert server.http.post("/v1/embeddings", json={"input": "the cat"}).status_code == 200
    under_way = server.app.state.metrics.under_way
    until(lambda: under_way._value.get() == 0)
    assert server.service.model.held == 0


def test_a_request_that_does_not_come_is_given_up(
    start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    server = start(settings=ServerSettings(timeout=0.5))
    for sent in (b"", b"POST /v1/embeddings HTTP/1.1\r\nHos"):
        with raw(server.url) as connection:
            connection.sendall(sent)
            assert connection.recv(1000) == b""
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with raw(server.url) as connection:
        connection.sendall(head + b"Content-Length: 100\r\n\r\n{")
        with connection.makefile("rb") as answer:
            told = answer.read()  # up to the end of the connection
    assert told.startswith(b"HTTP/1.1 408")
    assert b"body has not come within 0.5 seconds" in told
    with raw(server.url) as connection:  # between two requests, and behind a whole head, there is more time
        for _ in range(2):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            time.sleep(0.6)


def test_the_case_of_a_content_type_does_not_matter(server: Running) -> None:
    headers = {"Content-Type": "Application/JSON; Charset=UTF-8"}
    assert server.http.post("/v1/embeddings", content=b'{"input": "a"}', headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/perplexity"])
def test_a_model_without_output_layer_predicts_nothing(server: Running, path: str) -> None:
    answer = server.http.post(path, json={"input": "the ___"})
    assert answer.status_code == 400
    assert "'tiny' holds no output layer" in answer.json()["error"]["message"]


def test_models_of_one_name_are_not_served(model_folder: Path) -> None:
    with pytest.raises(ElmokitError, match="two models are named 'tiny'; give them as NAME=SOURCE"):
        serve(ServerSettings(port=0), model=[str(model_folder), f"{model_folder.parent}/../tiny"], tell=print)


def test_a_signal_in_the_middle_of_a_fork_reaches_the_new_worker(tmp_path: Path) -> None:
    """The system is slow to fork a large process, and a signal that comes meanwhile is heard when that is done."""
    program = tmp_path / "fork.py"
    program.write_text(
        "import os, signal, time\n"
        "from elmokit.server.workers import Workers\n"
        "fork = os.fork\n"
        "def slow():\n"
        "    pid = fork()\n"
        "    if pid:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(0.1)\n"
        "    return pid\n"
        "os.fork = slow\n"
        "def work(ready):\n"
        "    ready()\n"
        "    time.sleep(600)\n"
        "Workers(work, 2).run(lambda: None)\n"
    )
    with subprocess.Popen([sys.executable, program]) as process:
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_binding_elsewhere_without_a_key_warns(process: Callable[..., Process]) -> None:
    server = process("--host", "0.0.0.0")
    assert "whoever reaches it may use it" in server.said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"api_key_file": "nowhere"}, "the keys cannot be read"),
        ({"host": "203.0.113.7"}, "cannot be listened on"),
        ({"task": ("nowhere",)}, "no task model"),
        ({"index": ("nowhere",)}, "holds no index"),
        ({"task": ("a/ner", "b/ner")}, "two task models are named 'ner'"),
        ({"index": ("x=a", "x=b")}, "two indexes are named 'x'"),
    ],
)
def test_what_cannot_be_served_is_told(changes: dict[str, Any], said: str, model_folder: Path) -> None:
    with pytest.raises(ElmokitError, match=said):
        serve(ServerSettings(port=0, **changes), model=[str(model_folder)], tell=print)
