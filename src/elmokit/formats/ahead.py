"""Text cut into tokens by other processes, ahead of whoever takes the sentences, and in the order of the text.

A GPU embeds more words a second than one process can cut. Here the calling process reads the text, and workers cut it
and number its words:

    with Cutters(tokenizer, workers=4) as cutters:
        for sentence in read_sentences(path, tokenizer=tokenizer, cutters=cutters):
            ...
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing import connection, get_context, parent_process
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ElmokitError
from elmokit.formats.records import Unit
from elmokit.text import Tokenizer
from elmokit.text.packed import Packed, SentenceStream, telling

BLOCK_CHARACTERS = 1 << 17  # of text that a worker takes at a time
MOST_WORKERS = 16  # a worker that cuts a block holds some 80 MB

Fields = tuple[str, ...]
Given = list[tuple[Unit, Fields]]


class CutBlock(NamedTuple):
    """The sentences of a block of texts, as `Packed` has them; offsets stay behind."""

    words: list[str]
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    told: bytes  # as long as there are no fields
    ends: NDArray[np.int64]
    places: list[tuple[int, str | None, int]] | None  # each one's unit, text and start; None: each is a unit's text


class Cutters:
    """Worker processes with a tokenizer. Without workers, all happens in the calling process."""

    def __init__(
        self, tokenizer: Tokenizer, *, workers: int, lines: Literal["sentences", "paragraphs"] = "sentences"
    ) -> None:
        self.tokenizer, self.lines, self.workers = tokenizer, lines, workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers:
            self._pool = ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_begin, initargs=(self.tokenizer, self.lines)
            )
            for _ in range(self.workers):  # they start while a model is loaded
                self._pool.submit(_cut_here, [])
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def sentences(self, units: Iterable[tuple[Unit, Fields]]) -> SentenceStream:
        """The sentences of texts, and of lists of tokens as they are, with the fields of each."""
        return SentenceStream(self.blocks(units))

    def blocks(self, units: Iterable[tuple[Unit, Fields]]) -> Iterator[Packed]:
        """The same, many at a time."""
        if self._pool is None:
            for block in _blocks(units):
                yield _packed(block, cut_block([unit for unit, _ in block], self.tokenizer, self.lines))
            return
        pending: deque[tuple[Given, Future[CutBlock]]] = deque()
        blocks, failure = _blocks(units), None
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                break
            except Exception as error:  # a text that cannot be read: what stands before it comes first
                failure = error
                break
            pending.append((block, self._pool.submit(_cut_here, [unit for unit, _ in block])))
            if len(pending) > 2 * self.workers:  # what bounds the memory
                yield self._next(pending)
        while pending:
            yield self._next(pending)
        if failure is not None:
            raise failure

    def _next(self, pending: deque[tuple[Given, "Future[CutBlock]"]]) -> Packed:
        block, future = pending.popleft()
        return _packed(block, self._result(future))

    def _result(self, future: "Future[CutBlock]") -> CutBlock:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise ElmokitError(
                f"one of the {self.workers} processes that cut the text died, perhaps for want of memory; "
                "try again with fewer of them (--workers 0 needs none)"
            ) from error


def available_workers() -> int:
    """The CPUs this process may use, up to what fits in memory."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, MOST_WORKERS)


def cut_block(units: Sequence[Unit], tokenizer: Tokenizer, lines: str) -> CutBlock:
    """Cuts some texts and numbers their words."""
    from elmokit.formats.read import sentences_of

    tokens: list[tuple[str, ...]] = []
    told: list[bytes] = []
    places: list[tuple[int, str | None, int]] = []
    alike = True
    for k, unit in enumerate(units):
        for sentence in sentences_of(unit, tokenizer, lines=lines):  # type: ignore[arg-type]
            tokens.append(sentence.tokens)
            told.append(telling(sentence))
            alike = alike and len(tokens) == k + 1 and sentence.text == unit and not sentence.start
            places.append((k, sentence.text, sentence.start))
    made = Packed.of_tokens(tokens)
    ends = np.cumsum(np.fromiter(map(len, chain([b""], told)), np.int64, len(told) + 1))
    known = None if alike and len(tokens) == len(units) else places
    return CutBlock(made.words, made.ids, made.offsets, b"".join(told), ends, known)


def start_worker() -> None:
    """Ctrl-C is for the parent to handle; and when the parent is gone, however it went, its workers go too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


_here: tuple[Tokenizer, str] | None = None  # of a worker


def _begin(tokenizer: Tokenizer, lines: str) -> None:
    global _here
    start_worker()
    _here = tokenizer, lines


def _cut_here(units: list[Unit]) -> CutBlock:
    assert _here is not None
    return cut_block(units, *_here)


def _blocks(units: Iterable[tuple[Unit, Fields]]) -> Iterator[Given]:
    """Neighbours together. What could not be read is an error after those before it."""
    held: Given = []
    size = 0
    source = iter(units)
    while True:
        try:
            unit, fields = next(source)
        except StopIteration:
            break
        except Exception:
            if held:
                yield held
            raise
        held.append((unit, fields))
        size += len(unit) if isinstance(unit, str) else sum(map(len, unit))
        if size >= BLOCK_CHARACTERS:
            yield held
            held, size = [], 0
    if held:
        yield held


def _packed(block: Given, found: CutBlock) -> Packed:
    bare = not any(fields for _, fields in block)
    places = found.places
    texts = [unit for unit, _ in block] if places is None else [text for _, text, _ in places]
    return Packed(
        found.words,
        found.ids,
        found.offsets,
        texts,  # type: ignore[arg-type]
        () if places is None else [start for _, _, start in places],
        () if bare else [fields for _, fields in block] if places is None else [block[k][1] for k, _, _ in places],
        told=found.told if bare else b"",
        ends=found.ends if bare else None,
    )
