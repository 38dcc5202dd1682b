"""Many sentences in a few arrays: each distinct word once, and the words of all sentences as numbers.

Python's time for a word is then that of an element of an array.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from elmokit.text.sentence import Sentence

Ints = NDArray[np.int64]
Fields = tuple[str, ...]
AT_ONCE = 1024  # sentences


@dataclass(frozen=True, slots=True, eq=False)
class Packed(Sequence[Sentence]):
    """A sequence of sentences, which are made when asked for."""

    words: list[str]  # distinct
    ids: NDArray[np.int32]  # (N,) which word, sentence after sentence
    offsets: Ints  # (S + 1,) where each sentence begins among them, from 0
    texts: Sequence[str | None] = ()  # (S,), as are the next two
    starts: Sequence[int] = ()  # none: all 0
    fields: Sequence[Fields] = ()  # none: there are none
    given: Sequence[Sentence] = ()  # the sentences themselves, where there were such
    told: bytes = b""  # `telling` of all of them, where it is known
    ends: Ints | None = None  # (S + 1,) of each in it

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "Packed":
        """Sentences brought together; words in the order in which they first stand there."""
        if isinstance(sentences, Packed):
            return sentences
        return replace(cls.of_tokens([sentence.tokens for sentence in sentences]), given=sentences)

    @classmethod
    def of_tokens(cls, tokens: Sequence[Sequence[str]]) -> "Packed":
        place: defaultdict[str, int] = defaultdict(count().__next__)
        offsets = _summed(np.fromiter(map(len, tokens), np.int64, len(tokens)))
        ids = np.fromiter(map(place.__getitem__, chain.from_iterable(tokens)), np.int32, int(offsets[-1]))
        return cls(list(place), ids, offsets)

    @classmethod
    def joined(cls, parts: Sequence["Packed"]) -> "Packed":
        """One after another."""
        if len(parts) == 1:
            return parts[0]
        place: defaultdict[str, int] = defaultdict(count().__next__)
        ids = [np.fromiter(map(place.__getitem__, p.words), np.int32, len(p.words))[p.ids] for p in parts]
        sizes = np.concatenate([part.lengths for part in parts])
        if all(len(part.given) == len(part) for part in parts):
            given = [sentence for part in parts for sentence in part.given]
            return cls(list(place), np.concatenate(ids), _summed(sizes), given=given)
        sentences = [part._bare() for part in parts]
        ends = [np.diff(part.ends) for part in parts if part.ends is not None]
        told = len(ends) == len(parts)
        return cls(
            list(place),
            np.concatenate(ids),
            _summed(sizes),
            [text for texts, _, _ in sentences for text in texts],
            [start for _, starts, _ in sentences for start in starts],
            [own for _, _, fields in sentences for own in fields],
            told=b"".join([part.told for part in parts]) if told else b"",
            ends=_summed(np.concatenate(ends)) if told else None,
        )

    def _bare(self) -> tuple[Sequence[str | None], Sequence[int], Sequence[Fields]]:
        """Texts, starts and fields, one for each sentence."""
        S, given = len(self), self.given
        if given:
            return [s.text for s in given], [s.start for s in given], [s.fields for s in given]
        return self.texts or [None] * S, self.starts or [0] * S, self.fields or [()] * S

    @property
    def lengths(self) -> Ints:
        """Words of each sentence. (S,)"""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, key: int) -> Sentence: ...
    @overload
    def __getitem__(self, key: slice) -> "Packed": ...
    def __getitem__(self, key: int | slice) -> "Sentence | Packed":
        if isinstance(key, slice):
            return self._part(*key.indices(len(self)))
        k = range(len(self))[key]
        if self.given:
            return self.given[k]
        words = self.words
        tokens = tuple([words[i] for i in self.ids[self.offsets[k] : self.offsets[k + 1]].tolist()])
        return Sentence(
            tokens,
            self.texts[k] if self.texts else None,
            None,
            self.starts[k] if self.starts else 0,
            self.fields[k] if self.fields else (),
        )

    def __iter__(self) -> Iterator[Sentence]:
        return iter(self.given) if self.given else map(self.__getitem__, range(len(self)))

    def _part(self, start: int, stop: int, step: int) -> "Packed":
        if step != 1:
            raise ValueError(f"step {step}, expected neighbours")
        stop = max(start, stop)
        own, ends = slice(start, stop), self.ends
        return Packed(
            self.words,
            self.ids[self.offsets[start] : self.offsets[stop]],
            self.offsets[start : stop + 1] - self.offsets[start],
            self.texts[own],
            self.starts[own],
            self.fields[own],
            self.given[own],
            self.told if ends is None else self.told[ends[start] : ends[stop]],
            None if ends is None else ends[start : stop + 1] - ends[start],
        )

    def compact(self) -> "Packed":
        """The same with those words alone that stand in it, in the order in which they first do."""
        N = len(self.ids)
        first = np.full(len(self.words), N, np.int64)
        first[self.ids[::-1]] = np.arange(N - 1, -1, -1)
        used = np.flatnonzero(first < N)
        used = used[np.argsort(first[used])]
        number = np.zeros(len(self.words), np.int32)
        number[used] = np.arange(len(used), dtype=np.int32)
        words = self.words
        return Packed(
            [words[k] for k in used.tolist()],
            number[self.ids],
            self.offsets,
            self.texts,
            self.starts,
            self.fields,
            self.given,
            self.told,
            self.ends,
        )

    @property
    def lines(self) -> list[str]:
        """Each sentence as one line, stripped."""
        if self.given:
            return list(map(line_of, self.given))
        return [
            (" ".join(self[k].tokens) if text is None else text).strip()
            for k, text in enumerate(self.texts or [None] * len(self))
        ]

    def tell(self, update: Callable[[Any], object]) -> None:
        """Hands over `telling` of all sentences, in order."""
        if self.ends is not None:
            update(self.told)
        else:
            for sentence in self:
                update(telling(sentence))


def line_of(sentence: Sentence) -> str:
    """The sentence as one line, stripped."""
    return (" ".join(sentence.tokens) if sentence.text is None else sentence.text).strip()


def telling(sentence: Sentence) -> bytes:
    """What tells a sentence from others, for digests."""
    fields = [sentence.fields] if sentence.fields else []
    return json.dumps([sentence.text, sentence.tokens, *fields]).encode()


def cut_packed(blocks: Iterable[Packed], *, tokens: int) -> Iterator[Packed]:
    """Stretches of a stream, in order: each ends once it has so many positions, boundaries included."""
    held: list[Packed] = []
    size = 0
    for given in blocks:
        block = given
        while len(block):
            sums = np.cumsum(block.lengths + 2)
            k = int(np.searchsorted(sums, tokens - size))  # the sentence that fills the stretch
            if k == len(block):
                held.append(block)
                size += int(sums[-1])
                break
            yield Packed.joined([*held, block[: k + 1]])
            held, size, block = [], 0, block[k + 1 :]
    if held:
        yield Packed.joined(held)


class SentenceStream(Iterator[Sentence]):
    """Sentences one by one, or, by `blocks`, the rest of them many at a time."""

    def __init__(self, blocks: Iterator[Packed]) -> None:
        self._blocks, self._now, self._at = blocks, Packed([], np.zeros(0, np.int32), np.zeros(1, np.int64)), 0

    def __next__(self) -> Sentence:
        while self._at == len(self._now):
            self._now, self._at = next(self._blocks), 0
        self._at += 1
        return self._now[self._at - 1]

    def blocks(self) -> Iterator[Packed]:
        if rest := self._now[self._at :]:
            self._at = len(self._now)
            yield rest
        yield from self._blocks


def in_blocks(sentences: Iterator[Sentence]) -> Iterator[Packed]:
    """The sentences of a stream many at a time. An error comes after the sentences before it."""
    if isinstance(sentences, SentenceStream):
        yield from sentences.blocks()
        return
    while True:
        held: list[Sentence] = []
        try:
            held.extend(islice(sentences, AT_ONCE))
        except Exception:
            if held:
                yield Packed.of(held)
            raise
        if not held:
            return
        yield Packed.of(held)


def _summed(sizes: Ints) -> Ints:
    sums = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=sums[1:])
    return sums
