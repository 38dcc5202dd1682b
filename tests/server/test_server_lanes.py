"""Batches that run at once, in lanes: what may, what may not, and that answers are the same."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from running import Running, until

import transformer_models
from elmokit.encoders.transformer.encoder import Transformer
from elmokit.server import ServerSettings, Service
from elmokit.server.jobs import Call, Divisible, ModelThread
from elmokit.server.run import give_back

WORDS = ["the", "cat", "sat", "on", "mat", "playing", "plays", "dog", "."]
LATER = 600.0


class Several(Divisible):
    """A job of pieces with so many tokens each."""

    def __init__(self, pieces: int, *, size: int = 10, place: str = "here") -> None:
        super().__init__(size * pieces, deadline=time.monotonic() + LATER, patience=LATER)
        self.place, self.pieces = place, deque(range(k, k + size) for k in range(pieces))
        self.found: list[int] = []

    def result(self) -> list[int]:
        return sorted(self.found)


class Lanes:
    """Runs pieces when it is told to, and remembers what ran at once."""

    def __init__(self) -> None:
        self.lock, self.go = threading.Lock(), threading.Event()
        self.now = self.most = 0
        self.threads: set[str] = set()
        self.sizes: list[int] = []  # tokens of each batch

    def __call__(self, work: list[tuple[Several, list[range]]], budget: int) -> None:
        with self.lock:
            self.sizes.append(sum(len(piece) for _, pieces in work for piece in pieces))
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.current_thread().name)
        assert self.go.wait(60)
        for job, pieces in work:
            job.found += [piece.start for piece in pieces]
        with self.lock:
            self.now -= 1


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


@pytest.fixture
def thread(lanes: Lanes) -> Iterator[ModelThread]:
    made = ModelThread(run=lanes, bound=100_000, budget=200, lanes=lambda place, most: 1 if place == "alone" else 2)
    made.start()
    yield made
    lanes.go.set()
    made.close()
    made.thread.join(60)
    assert not made.thread.is_alive()


def call(function: Callable[[], object]) -> Call:
    return Call(function, 1, deadline=time.monotonic() + LATER, patience=LATER)


def hold(thread: ModelThread) -> threading.Event:
    release, begun = threading.Event(), threading.Event()
    thread.submit(call(lambda: begun.set() or release.wait(60)))
    assert begun.wait(60)
    return release


def test_a_job_is_done_when_all_lanes_are_done_with_it(thread: ModelThread, lanes: Lanes) -> None:
    release = hold(thread)
    jobs = [Several(25), Several(3), Several(25)]
    for job in jobs:
        thread.submit(job)
    release.set()
    until(lambda: lanes.now == 2)
    lanes.go.set()
    assert [job.future.result(60) for job in jobs] == [list(range(25)), list(range(3)), list(range(25))]
    assert lanes.most == 2
    assert len(lanes.threads & {"elmokit-lane_0", "elmokit-lane_1"}) == 2
    until(lambda: thread.held == 0)


def test_no_lane_takes_nearly_all_that_waits(lanes: Lanes) -> None:
    """Two lanes share what is asked for, though the budget of one would hold it all."""
    thread = ModelThread(run=lanes, bound=100_000, budget=20_000, lanes=lambda place, most: 2)
    thread.start()
    try:
        release = hold(thread)
        jobs = [Several(1, size=40) for _ in range(30)]
        for job in jobs:
            thread.submit(job)
        release.set()
        until(lambda: lanes.now == 2)
        lanes.go.set()
        assert [job.future.result(60) for job in jobs] == [[0]] * 30
        assert sorted(lanes.sizes) == [600, 600]
    finally:
        lanes.go.set()
        thread.close()
        thread.thread.join(60)


def test_what_waits_alone_has_all_threads(thread: ModelThread, lanes: Lanes) -> None:
    lanes.go.set()
    for _ in range(3):
        job = Several(5)
        thread.submit(job)
        assert job.future.result(60) == list(range(5))
        until(lambda: not thread._steps)
    assert lanes.threads == {"elmokit-model"}


def test_functions_and_other_places_wait_for_the_lanes(thread: ModelThread, lanes: Lanes) -> None:
    release, running = hold(thread), []
    for job in [Several(1, size=70), Several(1, size=70)]:  # no two in one batch
        thread.submit(job)
    asked = call(lambda: running.append(lanes.now))
    thread.submit(asked)
    other = Several(2, place="alone")
    thread.submit(other)
    release.set()
    until(lambda: lanes.now == 2)
    assert not asked.future.done()
    lanes.go.set()
    asked.future.result(60)
    assert running == [0]
    assert other.future.result(60) == [0, 1]


def test_an_error_is_that_of_its_batch_and_a_lane_may_hang(thread: ModelThread, lanes: Lanes) -> None:
    release = hold(thread)
    first, second = Several(1, size=70), Several(1, size=70)  # not in one batch
    first.patience = second.patience = 0.1
    first.found = None  # type: ignore[assignment]  # so that it fails
    for job in (first, second):
        thread.submit(job)
    release.set()
    until(lambda: lanes.now == 2)
    until(lambda: thread.problem is not None)
    assert "busy with one batch" in str(thread.problem)
    lanes.go.set()
    with pytest.raises(TypeError):
        first.future.result(60)
    assert second.future.result(60) == [0]
    until(lambda: thread.problem is None)


@pytest.fixture
def two_threads() -> Iterator[None]:
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(usual)


def test_a_bert_in_lanes_gives_what_encode_does(two_threads: None) -> None:
    made = transformer_models.bert()
    bert = Transformer(made.network, made.tokenizer, device="cpu")
    server = Running(Service({"bert": bert}, settings=ServerSettings(max_batch_tokens=512)), log=None)
    try:
        assert server.service.model._counts == {bert: 2}
        seen: set[str] = set()
        plain = server.service.model.run_pieces

        def watched(work: list[tuple[Divisible, list[object]]], budget: int) -> None:
            seen.add(threading.current_thread().name)
            plain(work, budget)

        server.service.model.run_pieces = watched
        rng = np.random.default_rng(5)
        asked = [[" ".join(rng.choice(WORDS, rng.integers(0, 50))) for _ in range(n)] for n in [1, 60, 2, 90, 7, 1] * 3]
        release = hold(server.service.model)
        with ThreadPoolExecutor(len(asked)) as pool:
            under_way = [pool.submit(server.http.post, "/v1/embeddings", json={"input": texts}) for texts in asked]
            until(lambda: len(server.service.model.waiting) == len(asked))
            release.set()
            for texts, answer in zip(asked, under_way, strict=True):
                found = np.array([row["embedding"] for row in answer.result().json()["data"]])
                np.testing.assert_allclose(found, bert.encode(texts, normalise=True), atol=1e-5)
        assert {"elmokit-lane_0", "elmokit-lane_1"} <= seen
    finally:
        server.close()


def test_twins_share_their_weights() -> None:
    made = transformer_models.bert()
    runner = Transformer(made.network, made.tokenizer, device="cpu").placed()
    first, second, third = runner.twins(3)
    assert first is runner
    assert runner.twins(2) == [first, second]
    addresses = {tuple(weight.data_ptr() for weight in one.network.parameters()) for one in (first, second, third)}  # type: ignore[attr-defined]
    assert len(addresses) == 1
    assert len({id(module) for one in (first, second, third) for module in one.network.modules()}) == 3 * len(  # type: ignore[attr-defined]
        list(made.network.modules())
    )


def test_memory_that_is_free_goes_back(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []

    def counted() -> None:
        give_back()
        came.append(threading.current_thread().name)

    monkeypatch.setattr("elmokit.server.run.TRIM", 0.01)
    monkeypatch.setattr("elmokit.server.run.give_back", counted)
    server = start()
    until(lambda: len(came) >= 3)
    assert server.thread.name not in came  # requests do not wait for it
    assert server.http.post("/v1/embeddings", json={"input": ["the cat sat"] * 20}).status_code == 200
