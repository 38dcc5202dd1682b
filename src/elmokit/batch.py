"""Sentences to batches: characters once per distinct word, and batches of similar length under a token budget.

The token encoder is context-free, so a batch holds the rows of its U word types and, for each position, its
type. NumPy only: a batch can be made, saved or sent without torch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.chars import Codec, TypeRows
from elmokit.text import Sentence
from elmokit.text.packed import Packed

Result = TypeVar("Result")

__all__ = ["TokenBatch", "build_batch", "plan_batches"]


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """A batch of sentences with their boundaries. Types 0 and 1 are the boundary rows; padding points at type 0."""

    words: tuple[str, ...]  # the U - 2 distinct words of types[2:]
    types: TypeRows  # (U, W)
    index: NDArray[np.int64]  # (B, T), boundaries included
    lengths: NDArray[np.int64]  # (B,), boundaries included

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True at real positions, boundaries included. (B, T)"""
        return np.asarray(np.arange(self.index.shape[1]) < self.lengths[:, None])


class WordIndex(NamedTuple):
    """Which word is where, before words become rows."""

    words: tuple[str, ...]  # the U - 2 distinct words; word k is type k + 2
    places: NDArray[np.int64]  # (B, T), the type at each position
    lengths: NDArray[np.int64]  # (B,)


def index_words(sentences: Sequence[Sentence]) -> WordIndex:
    """The sentences in the order given, between their boundaries; an empty one is its two boundaries."""
    place: dict[str, int] = {}
    ids = [[place.setdefault(word, len(place) + 2) for word in sentence.tokens] for sentence in sentences]
    lengths = np.array([len(row) + 2 for row in ids], dtype=np.int64)
    index = np.zeros((len(ids), int(lengths.max(initial=2))), dtype=np.int64)
    for row, known in zip(index, ids, strict=True):
        row[1 : len(known) + 1] = known
        row[len(known) + 1] = 1
    return WordIndex(tuple(place), index, lengths)


@dataclass(frozen=True, slots=True)
class PackedOrder:
    """Sentences in the packed, time-major order of the recurrence: rows sorted by length, longest first."""

    lengths: NDArray[np.int64]  # (B,) in batch order
    order: NDArray[np.int64]  # (B,) batch row of each sorted row
    steps: tuple[int, ...]  # rows still running at each step
    flat: NDArray[np.int64]  # (R, N) position in the flattened (B * T) batch; a backward direction's is reversed

    @classmethod
    def of(cls, lengths: NDArray[np.int64], *, backward: Sequence[bool]) -> Self:
        order = np.argsort(-lengths, kind="stable")
        ranked = lengths[order]  # (B,) descending
        T = int(ranked[0]) if len(ranked) else 0
        steps = np.searchsorted(-ranked, -np.arange(T))  # (T,) rows longer than t
        time = np.repeat(np.arange(T), steps)  # (N,)
        row = np.arange(len(time)) - np.repeat(np.cumsum(steps) - steps, steps)  # (N,) sorted row
        start = order[row] * T
        mirrored = ranked[row] - 1 - time
        flat = np.stack([start + (mirrored if turned else time) for turned in backward])
        return cls(lengths, order, tuple(steps.tolist()), flat)

    def back(self) -> NDArray[np.int64]:
        """Where each position's directions stand among the packed rows of all directions, side by side. (B * T * R,)"""
        R, N = self.flat.shape
        rows = np.zeros((R, len(self.lengths) * len(self.steps)), np.int64)
        np.put_along_axis(rows, self.flat, np.arange(R * N).reshape(R, N), axis=1)
        return rows.T.reshape(-1)

    def padding(self) -> NDArray[np.int64]:
        """Positions of the flattened (B * T) batch that no word stands at."""
        return np.flatnonzero(np.arange(len(self.steps)) >= self.lengths[:, None])


def build_batch(sentences: Sequence[Sentence], codec: Codec) -> TokenBatch:
    """The sentences in the order given, with the row of each distinct word."""
    words, index, lengths = index_words(sentences)
    types = np.concatenate([codec.begin[None], codec.end[None], codec.encode(words)])
    return TokenBatch(words, types, index, lengths)


def plan_batches(
    sentences: Iterable[Sentence], *, batch_tokens: int, window: int = 64
) -> Iterator[list[tuple[int, Sentence]]]:
    """Batches of (position, sentence), similar lengths together, at most `batch_tokens` positions with padding.

    Reads about `window` batches ahead, so a generator of any length runs in bounded memory and short and long sentences
    are kept apart. A sentence over the budget is a batch of its own.
    """
    for batches in plan_windows(sentences, batch_tokens=batch_tokens, window=window):
        yield from batches


def plan_windows(
    sentences: Iterable[Sentence], *, batch_tokens: int, window: int
) -> Iterator[list[list[tuple[int, Sentence]]]]:
    """The same batches; those of each stretch of the input that is read at a time together."""
    pending: list[tuple[int, Sentence]] = []
    tokens = 0
    for item in enumerate(sentences):
        pending.append(item)
        tokens += len(item[1]) + 2
        if tokens >= batch_tokens * window:
            yield list(_cut(pending, batch_tokens))
            pending, tokens = [], 0
    if pending:
        yield list(_cut(pending, batch_tokens))


def _cut(items: list[tuple[int, Sentence]], batch_tokens: int) -> Iterator[list[tuple[int, Sentence]]]:
    items.sort(key=lambda item: len(item[1]), reverse=True)
    batch: list[tuple[int, Sentence]] = []
    for item in items:
        longest = (
            len((batch or [item])[0][1]) + 2
        )  # padding counts: one long sentence must not widen a thousand short ones
        if batch and (len(batch) + 1) * longest > batch_tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


class Window(NamedTuple):
    """Sentences whose results are brought into order together, and how they run."""

    sentences: Packed
    batches: list[NDArray[np.int64]]  # numbers of sentences, the longest first

    @classmethod
    def of(cls, sentences: Packed, *, batch_tokens: int) -> Self:
        """The batches that `plan_batches` makes."""
        lengths = sentences.lengths + 2
        order = np.argsort(-lengths, kind="stable")
        batches, at = [], 0
        while at < len(order):
            size = max(batch_tokens // int(lengths[order[at]]), 1)  # padding counts
            batches.append(order[at : at + size])
            at += size
        return cls(sentences.compact(), batches)


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results that come with their positions in any order, by position from 0; each leaves as soon as it may."""
    waiting: dict[int, Result] = {}
    due = 0
    for position, result in results:
        waiting[position] = result
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def cut_stream(sentences: Iterable[Sentence], *, tokens: int) -> Iterator[list[Sentence]]:
    """Stretches of a stream, in order: each ends once it has so many positions, boundaries included."""
    stretch: list[Sentence] = []
    held = 0
    for sentence in sentences:
        stretch.append(sentence)
        held += len(sentence) + 2
        if held >= tokens:
            yield stretch
            stretch, held = [], 0
    if stretch:
        yield stretch
