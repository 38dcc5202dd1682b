"""The model thread: one thread for all that computes, a bounded queue, and batches over all clients.

A `Call` is any function; it runs alone. An `Embedding` is cut into sentences, and those of all embeddings that wait are
batched together. Every job takes at most `quantum` tokens in its turn, so a large one does not hold up small ones; half
as many more where it is done with that. A turn that a full batch cuts short goes on with the next one.

Where a place has several lanes, the model thread hands batches to them, each a share of the budget, and makes the next
one when a lane is free. What waits alone, and whatever else runs, has all threads for itself.

The queue is bounded in tokens, and in the seconds that a new embedding would wait for its first turn, as it seems from
the batches that ran lately. Once it was full, requests are refused unseen until there is room again (`check_door`).
"""

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol

import torch

from elmokit.server.errors import GoneError, LateError, OverloadedError, UnavailableError
from elmokit.server.lanes import Lanes

LEAST = 256  # tokens in the full batch of a lane: with fewer, lanes do less than threads that work together
DOOR = 7 / 8  # how full the queue may be when it is opened again after a refusal

_running = threading.local()


class Job:
    """Something to compute. Cancel its `future` to drop it; one that has begun may ask `cancelled`."""

    def __init__(self, tokens: int, *, deadline: float, patience: float) -> None:
        self.tokens = tokens
        self.deadline = deadline  # of time.monotonic()
        self.patience = patience  # seconds that one step may take before the thread counts as stuck
        self.future: Future[Any] = Future()
        self.held = 0  # tokens that it still has in the queue's count
        self.turn = 0  # of these, those of its next turn, if it is one whose time can be told
        self.queued = self.began = 0.0
        self.under_way = 0  # steps that it is part of now
        self.spent = 0.0  # seconds in the model, in proportion to its share of the batches

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.future.done()

    @property
    def waited(self) -> float:
        """Seconds in the queue."""
        return self.began - self.queued if self.began else 0.0

    def finish(self, result: Any) -> None:
        _settle(self.future.set_result, result)

    def fail(self, error: BaseException) -> None:
        _settle(self.future.set_exception, error)


class Call(Job):
    """A function without arguments, to be run alone."""

    def __init__(self, function: Callable[[], Any], tokens: int, *, deadline: float, patience: float) -> None:
        super().__init__(tokens, deadline=deadline, patience=patience)
        self.function = function


class Divisible(Job):
    """A job in pieces; pieces of jobs with the same `place` run together."""

    place: Any
    pieces: deque[Any]  # what waits; each has a length in tokens

    def result(self) -> Any:
        """The answer, when all pieces have run."""
        raise NotImplementedError

    def take(self, tokens: int) -> list[Any]:
        """The next pieces, so many tokens of them, but at least one."""
        taken: list[Any] = []
        while self.pieces and (not taken or tokens >= len(self.pieces[0])):
            piece = self.pieces.popleft()
            tokens -= len(piece)
            taken.append(piece)
        return taken


Work = list[tuple[Job, list[Any]]]


class Runs(Protocol):
    """Runs the pieces of some jobs together and gives each job its results."""

    def __call__(self, work: list[tuple[Divisible, list[Any]]], budget: int) -> None: ...


class ModelThread:
    """The thread and its queue, of `bound` tokens and `seconds` at most. Any thread may `submit`."""

    def __init__(
        self,
        *,
        run: Runs,
        bound: int,
        budget: int,
        seconds: float = math.inf,
        lanes: Callable[[Any, int], int] = lambda place, most: 1,
        name: str = "model",
    ) -> None:
        """`lanes` says how many batches of a place may run at once, so many or fewer."""
        self.bound, self.seconds, self.budget, self.quantum = bound, seconds, budget, max(budget // 4, 1)
        self.run_pieces, self.lanes_of = run, lanes
        self.done: Callable[[Job], None] = lambda job: None  # hears of every job that has run
        self.ran: Callable[[int, float], None] = lambda tokens, seconds: None  # hears of every batch
        self.waiting: deque[Job] = deque()
        self.held = 0  # tokens of all jobs that are not done
        self.rate = 0.0  # tokens a second, lately
        self.full = False  # since a job was refused
        self._turns: defaultdict[Any, int] = defaultdict(int)  # by place, tokens of all jobs' next turns
        self._pace: dict[Any, float] = {}  # by place, seconds a token in batches that were full
        self.started = self.stopping = False
        self._steps: dict[int, tuple[float, float]] = {}  # what runs now, by number: when it began, its patience
        self._place: Any = None  # what runs now is for this one
        self._counts: dict[Any, int] = {}  # lanes by place
        self._lanes: dict[int, Lanes] = {}  # by their count
        self._changed = threading.Condition()
        self.name, self.thread = name, threading.current_thread()  # until `start` makes its own

    def start(self) -> None:
        """Starts the thread, in the process that serves: a thread made before a fork does not run behind it."""
        self.thread = threading.Thread(target=self._work, name=f"elmokit-{self.name}", daemon=True)
        self.started = True
        self.thread.start()

    def close(self) -> None:
        """Takes no more jobs, and ends when those that wait are done."""
        with self._changed:
            self.stopping = True
            self._changed.notify_all()

    @property
    def problem(self) -> str | None:
        """What is wrong with the thread, if anything."""
        if not self.started or not self.thread.is_alive():
            return None if self.stopping else "the model thread does not run"
        now = time.monotonic()
        for began, patience in list(self._steps.values()):
            if now - began > patience:
                return f"the model thread has been busy with one batch for {now - began:.0f} seconds"
        return None

    @property
    def wait(self) -> float:
        """Seconds until a new embedding has its first turn, as it seems; functions that wait are not counted."""
        return sum(self._pace.get(place, 0.0) * tokens for place, tokens in list(self._turns.items()))

    def check_room(self, tokens: int) -> None:
        """429 where so many tokens more do not fit. A job larger than the bound runs if nothing else waits."""
        if not self.held:
            return
        if self.held + tokens > self.bound:
            self.full = True
            raise OverloadedError(f"{self.held:,} tokens are waiting, and at most {self.bound:,} may", self.delay())
        if (wait := self.wait) > self.seconds:
            self.full = True
            told = f"a request would wait {wait:.1f} seconds for its turn, and {self.seconds:g} are the most"
            raise OverloadedError(told, self.delay())

    def check_door(self) -> None:
        """429 for a request that nobody has read yet, if one was refused and the queue is still nearly full."""
        if self.full:
            self.full = self.held > DOOR * self.bound or self.wait > DOOR * self.seconds
            if self.full:
                raise OverloadedError("too many requests are waiting", self.delay())

    def delay(self) -> int:
        """Seconds until what waits now is done, as it seems; from 1 to 60."""
        return min(max(math.ceil(self.held / self.rate), 1), 60) if self.rate else 1

    def submit(self, job: Job) -> None:
        with self._changed:
            if self.stopping or not self.started or not self.thread.is_alive():
                raise UnavailableError("the server is stopping" if self.stopping else "the model thread does not run")
            self.check_room(job.tokens)
            job.queued = time.monotonic()
            self._hold(job, job.tokens)
            self.waiting.append(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._dropped(job))

    def _dropped(self, job: Job) -> None:
        """A job that is cancelled gives its tokens back at once, before its turn comes."""
        with self._changed:
            self._hold(job, 0)

    def _hold(self, job: Job, tokens: int) -> None:
        """So many tokens of the job are not done; called under the lock."""
        self.held += tokens - job.held
        job.held = tokens
        if isinstance(job, Divisible):
            turn = self._turn(tokens)
            self._turns[job.place] += turn - job.turn
            job.turn = turn

    def _turn(self, tokens: int) -> int:
        """How many of the tokens of a job it may have in its next turn."""
        return tokens if 2 * tokens <= 3 * self.quantum else self.quantum

    def _work(self) -> None:
        try:
            self._serve()
        finally:  # if it ends before its time, nobody waits in vain
            with self._changed:
                for job in self.waiting:
                    job.fail(UnavailableError("the model thread has ended"))
                self.waiting.clear()
            for lanes in self._lanes.values():
                lanes.close()

    def _serve(self) -> None:
        for number in count():
            with self._changed:
                while not (lanes := self._room()):
                    if self.stopping and not self.waiting and not self._steps:
                        return
                    self._changed.wait()
                work, patience = self._gather(self._share(lanes))
                if not work:  # cancelled just now
                    continue
                alone = lanes == 1 or not (self._steps or self.waiting)
                self._steps[number] = time.monotonic(), patience
            if alone:
                self._run(work, number, 1)
            else:
                if lanes not in self._lanes:
                    self._lanes[lanes] = Lanes(lanes)
                self._lanes[lanes].run(partial(self._run, work, number, lanes))

    def _share(self, lanes: int) -> int:
        """The most tokens of the next batch: a lane's part of the budget and, if less, of all that is asked for now.

        Else one lane would take nearly everything, and whoever comes meanwhile would wait for all of it.
        """
        fair = self.budget if lanes == 1 else max(-(-self.held // lanes), LEAST)
        return max(min(self.budget // lanes, fair), 1)

    def _room(self) -> int:
        """In how many lanes the job that is next may run; 0 if there is none, or it has to wait. Under the lock."""
        while self.waiting and not self._alive(self.waiting[0]):
            self.waiting.popleft()
        if not self.waiting:
            return 0
        job = self.waiting[0]
        if not isinstance(job, Divisible):
            return 0 if self._steps else 1
        if self._steps and (job.place != self._place or len(self._steps) >= self._counts[job.place]):
            return 0
        if job.place not in self._counts:
            most = min(torch.get_num_threads(), max(self.budget // LEAST, 1))
            self._counts[job.place] = self.lanes_of(job.place, most)
        self._place = job.place
        return self._counts[job.place]

    def _gather(self, left: int) -> tuple[Work, float]:
        """The next call, or the pieces of the next batch, so many tokens; called under the lock."""
        work: dict[int, tuple[Job, list[Any]]] = {}
        patience, place, passed = 0.0, None, deque[Job]()
        while self.waiting and left > 0:
            job = self.waiting.popleft()
            if not self._alive(job):
                continue
            if not isinstance(job, Divisible):
                if work:  # its turn comes after this batch
                    self.waiting.appendleft(job)
                    break
                work[id(job)] = job, []
                patience = job.patience
                break
            if work and job.place != place:  # another model: its turn comes next
                passed.append(job)
                continue
            if work and len(job.pieces[0]) > left:  # the batch is full
                self.waiting.appendleft(job)
                break
            place = job.place
            waits = sum(map(len, job.pieces))
            taken = job.take(min(self._turn(waits), left))
            rest = waits - sum(map(len, taken))
            short = self._turn(waits) > left
            left -= waits - rest
            work.setdefault(id(job), (job, []))[1].extend(taken)
            patience = max(patience, job.patience)
            if rest and short:
                self.waiting.appendleft(job)
                break
            if rest:
                self.waiting.append(job)  # behind all that wait
        self.waiting.extendleft(reversed(passed))
        now = time.monotonic()
        for job, _ in work.values():
            job.began = job.began or now
            job.under_way += 1
        return list(work.values()), patience

    def _alive(self, job: Job) -> bool:
        """Whether it is still wanted, and in time."""
        if not job.cancelled and job.deadline <= time.monotonic():
            job.fail(LateError(job.deadline - job.queued))
        return not job.cancelled

    def _run(self, work: Work, number: int, lanes: int) -> None:
        """Runs what was gathered as one step, which is one of so many at once."""
        began, first = time.monotonic(), work[0][0]
        answer, wrong = None, None
        _running.job = first
        try:
            if isinstance(first, Call):
                answer = first.function()
            else:
                self.run_pieces(work, self.budget)  # type: ignore[arg-type]
        except BaseException as error:  # whatever it is, it belongs to whoever asked, and the thread lives on
            wrong = error
        finally:
            _running.job = None
        ended = self._note(work, time.monotonic() - began, lanes)
        for job, _ in work:
            if wrong is not None:
                job.fail(wrong)
            elif not isinstance(job, Divisible):
                job.finish(answer)
            elif job in ended and not job.cancelled:
                job.finish(job.result())
            if job.future.done():
                self.done(job)
        with self._changed:
            del self._steps[number]
            self._changed.notify()

    def _note(self, work: Work, seconds: float, lanes: int) -> set[Job]:
        """Who took how long, and what no longer waits; returns the jobs of which this was the last part."""
        sizes = [sum(map(len, pieces)) if pieces else job.tokens for job, pieces in work]
        total = max(sum(sizes), 1)
        with self._changed:
            if seconds > 0:
                self.rate = _lately(self.rate, lanes * total / seconds)
            first = work[0][0]
            if isinstance(first, Divisible) and 2 * lanes * total >= self.budget:  # a small batch takes more a token
                self._pace[first.place] = _lately(self._pace.get(first.place, 0.0), seconds / (lanes * total))
            for (job, _), size in zip(work, sizes, strict=True):
                job.spent += seconds * size / total
                job.under_way -= 1
                self._hold(job, max(job.held - size, 0))
            ended = {job for job, _ in work if not job.under_way and not (isinstance(job, Divisible) and job.pieces)}
        self.ran(total, seconds)
        return ended


def _lately(before: float, now: float) -> float:
    """A mean in which what is new counts a fifth."""
    return 0.8 * before + 0.2 * now if before else now


def current_job() -> Job | None:
    """The job that this thread runs: a long function may ask `current_job().cancelled` and return early."""
    return getattr(_running, "job", None)


def leave_if_cancelled(*_: int) -> None:
    """Ends a long function that nobody waits for any more; given as what hears of its progress."""
    if (job := current_job()) is not None and job.cancelled:
        raise GoneError


def _settle(set_it: Callable[[Any], None], value: Any) -> None:
    with suppress(InvalidStateError):  # cancelled meanwhile
        set_it(value)
