"""Sentences to training windows: B parallel streams, T steps at a time, both directions over the same sentences.

A sentence of n words takes n + 1 steps of a stream. Forward it reads `<S> w_1 .. w_n` and predicts `w_1 .. w_n </S>`;
backward it reads `</S> w_n .. w_1` and predicts `w_n .. w_1 <S>`. Since both directions walk through the same
sentences at the same time, a window's word types are encoded once for both.

A run's windows are a pure function of (seed, epoch, segment, window), so a position in the data is three numbers.
"""

import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Ints = NDArray[np.int64]
BOS_ID, EOS_ID, UNK_ID = 0, 1, 2
AS_WRITTEN, LOWER, UPPER = 0, 1, 2  # forms of a word
SEGMENT = 2**23  # stream positions laid out at once: bounds host memory, whatever the corpus


class Sentences(Protocol):
    """What windows are cut from: any number of sentences of word-type ids."""

    def __len__(self) -> int: ...

    @property
    def n_tokens(self) -> int: ...

    def gather(self, which: Ints) -> tuple[NDArray[np.uint32], Ints]:
        """The chosen sentences one after the other, and their lengths."""
        ...


class Position(NamedTuple):
    """Where the next window is read: all that a checkpoint needs to know about the data."""

    epoch: int = 0
    segment: int = 0
    window: int = 0


@dataclass(frozen=True, slots=True)
class WindowPlan:
    rows: int  # B, over all processes
    steps: int  # T
    vocabulary: int  # word types from this id on are <UNK> as targets
    directions: tuple[str, ...] = ("forward", "backward")
    order: Literal["shuffled", "corpus"] = "shuffled"
    state: Literal["reset", "carry", "random"] = "reset"
    reset_probability: float = 0.5
    seed: int = 1
    recase: float = 0.0  # share of the sentences that are read in another case
    words: int = 0  # of the lexicon: word k in form f (as written, in lower case, in capitals) is type f * words + k


class Window(NamedTuple):
    """One step's input for some of the rows, packed time-major: position t * B + b."""

    types: Ints  # (U,) word-type ids, ascending
    which: Ints  # (R, T * B) into types
    targets: Ints  # (R, T * B) vocabulary ids
    keep: NDArray[np.float32]  # (T * B,) 0 where a row starts from zero state; the same for both directions
    after: Position  # where the next window is


class Streams(NamedTuple):
    """A segment laid out as rows: inputs and targets by direction, and where the state starts anew."""

    inputs: NDArray[np.uint32]  # (R, B, S)
    targets: NDArray[np.uint32]  # (R, B, S)
    keep: NDArray[np.bool_]  # (B, S)


def windows(
    sentences: Sentences, plan: WindowPlan, *, start: Position, parts: Sequence[slice]
) -> Iterator[list[Window]]:
    """Endless windows from a position on, each as the given parts of its rows."""
    segments = segment_bounds(sentences, plan)
    ahead = Prefetch(_segments(sentences, plan, segments, start), depth=1)  # the next one is laid out meanwhile
    epoch, segment, window = start
    try:
        while True:
            streams = next(ahead)
            numbering = Numbering(int(streams.inputs.max(initial=0)) + 1)
            n = streams.keep.shape[1] // plan.steps
            last = segment + 1 == len(segments)
            following = Position(epoch + 1, 0, 0) if last else Position(epoch, segment + 1, 0)
            for k in range(window, n):
                after = Position(epoch, segment, k + 1) if k + 1 < n else following
                yield [_cut(streams, plan, k, rows, numbering, after) for rows in parts]
            epoch, segment, window = following
    finally:
        ahead.close()


def _segments(
    sentences: Sentences, plan: WindowPlan, segments: list[tuple[int, int]], start: Position
) -> Iterator["Streams"]:
    epoch, first = start.epoch, start.segment
    while True:
        for bounds in segments[first:]:
            yield lay_out(sentences, plan, epoch, bounds)
        epoch, first = epoch + 1, 0


class Numbering:
    """The distinct word types of a window, through a table of all types: no sorting, a tenth of `np.unique`'s time."""

    def __init__(self, n_types: int) -> None:
        self.seen = np.zeros(n_types, dtype=bool)
        self.place = np.zeros(n_types, dtype=np.int64)

    def __call__(self, ids: NDArray[np.uint32]) -> tuple[Ints, Ints]:
        """The distinct ids, ascending, and where each of `ids` stands among them."""
        self.seen[ids] = True
        types = np.flatnonzero(self.seen)
        self.seen[types] = False
        self.place[types] = np.arange(len(types))
        return types, self.place[ids]


def segment_bounds(sentences: Sentences, plan: WindowPlan) -> list[tuple[int, int]]:
    """The sentences of an epoch in equal parts of about SEGMENT positions, each with some windows on every row."""
    positions = sentences.n_tokens + len(sentences)
    parts = max(1, min(round(positions / SEGMENT), positions // (4 * plan.rows * plan.steps)))
    edges = np.linspace(0, len(sentences), parts + 1).astype(np.int64).tolist()
    return list(itertools.pairwise(edges))


def lay_out(sentences: Sentences, plan: WindowPlan, epoch: int, bounds: tuple[int, int]) -> Streams:
    """One segment of an epoch as B streams of equal length; what does not fill them is left for other epochs."""
    which = np.arange(*bounds)
    if plan.order == "shuffled":
        which = shuffled(which, len(sentences), seed=(plan.seed, epoch))
    words, lengths = sentences.gather(which)
    spans = lengths + 1
    start = np.repeat(np.cumsum(lengths) - lengths, spans)  # (S * B,) of the sentence in `words`
    within = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
    n = np.repeat(lengths, spans)
    first, last = within == 0, within == n
    padded = np.concatenate([words, np.zeros(1, words.dtype)])  # so that the unused index at an edge stays inside
    inputs, targets = [], []
    for direction in plan.directions:
        if direction == "forward":
            inputs.append(np.where(first, BOS_ID, padded[start + within - 1]))
            targets.append(np.where(last, EOS_ID, padded[start + within]))
        else:
            inputs.append(np.where(first, EOS_ID, padded[start + n - within]))
            targets.append(np.where(last, BOS_ID, padded[start + n - 1 - within]))
    if plan.recase:
        forms = np.repeat(_forms(plan, epoch, bounds, len(lengths)), spans)  # (S * B,)
        inputs = [np.where(first, x, x + forms * np.int64(plan.words)) for x in inputs]
    keep = ~first
    if plan.state != "reset":
        chance = plan.reset_probability if plan.state == "random" else 0.0
        dice = np.random.default_rng([plan.seed, epoch, bounds[0]]).random(int(first.sum()))
        keep[first] = dice >= chance
    S = len(within) // plan.rows
    shape = (plan.rows, S)
    keep = keep[: S * plan.rows].reshape(shape)
    keep[:, :1] = False  # a segment's streams start anew
    cut = [np.stack([x[: S * plan.rows].reshape(shape) for x in xs]).astype(np.uint32) for xs in (inputs, targets)]
    return Streams(cut[0], cut[1], keep)


def _forms(plan: WindowPlan, epoch: int, bounds: tuple[int, int], n: int) -> Ints:
    """Which form each sentence of a segment is read in. (n,)"""
    dice = np.random.default_rng([plan.seed, epoch, bounds[0], 1]).random(n)
    return np.select([dice < plan.recase / 2, dice < plan.recase], [LOWER, UPPER], AS_WRITTEN)


def _cut(streams: Streams, plan: WindowPlan, window: int, rows: slice, numbering: Numbering, after: Position) -> Window:
    """A window of the streams, with its distinct word types."""
    at = slice(window * plan.steps, (window + 1) * plan.steps)
    R = len(plan.directions)
    inputs = streams.inputs[:, rows, at].transpose(0, 2, 1).reshape(R, -1)  # (R, T * B)
    targets = streams.targets[:, rows, at].transpose(0, 2, 1).reshape(R, -1).astype(np.int64)
    types, which = numbering(inputs)
    known = np.where(targets < plan.vocabulary, targets, UNK_ID)
    keep = streams.keep[rows, at].T.reshape(-1).astype(np.float32)
    return Window(types, which, known, keep, after)


class Prefetch(Generic[T]):
    """Iterates over `source` in a thread, a few items ahead. An error there is raised here, when its turn comes."""

    def __init__(self, source: Iterator[T], *, depth: int = 4) -> None:
        self._queue: queue.Queue[T | BaseException] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(source,), daemon=True)
        self._thread.start()

    def _work(self, source: Iterator[T]) -> None:
        try:
            for item in source:
                if not self._offer(item):
                    return
        except BaseException as error:  # handed over, not handled
            self._offer(error)

    def _offer(self, item: T | BaseException) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __next__(self) -> T:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()


def shuffled(which: NDArray[np.int64], n: int, *, seed: tuple[int, ...]) -> NDArray[np.int64]:
    """Where the seed's permutation of 0..n-1 sends the places `which`; computed where needed, so it takes no memory.

    Four rounds of a Feistel network over the smallest even power of two that holds n, walked until inside the range.
    """
    half = np.uint64(max(1, (max(n - 1, 1).bit_length() + 1) // 2))
    low = np.uint64((1 << int(half)) - 1)
    keys = np.random.default_rng(seed).integers(0, 2**63, size=4, dtype=np.uint64)
    result = which.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        x = result[outside]
        left, right = x >> half, x & low
        for key in keys:
            left, right = right, left ^ (_mix(right + key) & low)
        result[outside] = (left << half) | right
        outside = result >= np.uint64(n)
    return result.astype(np.int64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit finaliser: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.asarray(x ^ (x >> np.uint64(33)))
