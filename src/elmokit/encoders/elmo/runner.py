"""The biLM in one place: sentences to a `LayerStack` on one device, in one number type, with its word cache.

The token encoder knows no context, so the vector of a word never changes and can be kept.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import index_words
from elmokit.chars import Codec, TypeRows
from elmokit.encoders._transfers import upload
from elmokit.encoders.batches import BatchRunner, Turn
from elmokit.encoders.elmo._cuda_graphs import MOST_ROWS, CudaGraphs, wanted
from elmokit.encoders.elmo._window import WordWindow
from elmokit.kernels.cpu.copies import put_rows, take_rows
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, State
from elmokit.text import Sentence
from elmokit.text.packed import Ints, Packed

MOST_WORDS = 1 << 14  # new words that are encoded at once: memory does not grow with their number


class Runner(BatchRunner):
    """Runs the biLM without gradients; each distinct word of a batch is encoded once, or taken from the cache."""

    def __init__(self, bilm: BiLM, codec: Codec, *, cache_words: int) -> None:
        self.bilm, self.codec = bilm, codec
        weight = next(bilm.tokens.parameters())
        super().__init__(weight.device, weight.dtype)
        width = bilm.config.lstm.projection_dim
        self.turn = Turn(self.device)
        self.cache = WordCache(cache_words, width=width, device=self.device, dtype=self.dtype, turn=self.turn)
        self.boundaries: Tensor | None = None  # (2, P) the vectors of sentence begin and end
        used = self.device.type == "cuda" and wanted()
        self.graphs = CudaGraphs(bilm, filling=codec.begin, turn=self.turn) if used else None

    @torch.no_grad()
    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        if self.graphs is None or not self.graphs.take(sentences):
            return self.layers(sentences)[0]
        words, index, lengths = index_words(sentences)
        vectors = self.word_vectors(words)  # (U, P)
        replayed = self.graphs.run(vectors, index, lengths)
        return (
            self.bilm.contextualise(vectors, upload(index, self.device), lengths)[0] if replayed is None else replayed
        )

    @torch.no_grad()  # not inference_mode: mixes are trained on these layers
    def layers(self, sentences: Sequence[Sentence], *, state: State | None = None) -> tuple[LayerStack, State]:
        """All layers with boundaries, and the state each row ends in."""
        words, index, lengths = index_words(sentences)
        vectors = self.word_vectors(words)  # (U, P)
        return self.bilm.contextualise(vectors, upload(index, self.device), lengths, state=state)

    @torch.no_grad()
    def window(self, sentences: Packed) -> Callable[[Ints], LayerStack] | None:
        if len(sentences) <= MOST_ROWS and self.graphs is not None:
            return None  # perhaps there is a graph of it
        return WordWindow(self.bilm, self.word_vectors(sentences.words), sentences).run

    def word_vectors(self, words: Sequence[str]) -> Tensor:
        """The two boundaries' vectors, then those of the words. (U, P)"""
        with self.turn:
            if self.boundaries is None:
                self.boundaries = self._encode_rows(np.stack([self.codec.begin, self.codec.end]))
            boundaries = self.boundaries
        if boundaries.is_cuda:  # so that its memory stays until this stream is done, if another thread forgets it
            boundaries.record_stream(torch.cuda.current_stream(self.device))
        return torch.cat([boundaries, self.cache.vectors(words, self._encode_words)]) if words else boundaries

    def forget_words(self) -> None:
        """Empty the word cache; needed after any change of the network's weights."""
        with self.turn:
            self.cache.clear()
            self.boundaries = None

    def _encode_words(self, words: Sequence[str]) -> Tensor:
        if len(words) > MOST_WORDS:
            parts = [words[at : at + MOST_WORDS] for at in range(0, len(words), MOST_WORDS)]
            return torch.cat([self._encode_words(part) for part in parts])
        rows = self.codec.encode(words)  # (U, W)
        replayed = None if self.graphs is None else self.graphs.encode(rows)
        return self._encode_rows(rows) if replayed is None else replayed

    def _encode_rows(self, rows: TypeRows) -> Tensor:
        vectors: Tensor = self.bilm.tokens(upload(rows, self.device))  # (U, P)
        return vectors


class CacheInfo(NamedTuple):
    """How the word cache fared: distinct words per batch that were there, that were not, and how full it is."""

    hits: int
    misses: int
    size: int
    capacity: int


class WordCache:
    """At most `capacity` word vectors, the least recently used leaving first.

    All vectors lie in one tensor and a word owns a slot of it, so a batch is one gather, not a thousand small copies.
    Threads take turns to look words up together with their vectors, and to put new ones in; they encode side by side.
    """

    def __init__(
        self, capacity: int, *, width: int, device: torch.device, dtype: torch.dtype, turn: Turn | None = None
    ) -> None:
        self.capacity = capacity
        with torch.inference_mode(False):  # so that it can be written to in any mode
            self.table = torch.empty(capacity, width, device=device, dtype=dtype)  # (capacity, P)
        self.slots: dict[str, int] = {}  # oldest use first; slots 0 to len(slots) - 1 are taken
        self.hits = self.misses = 0
        self.turn = turn or Turn(device)

    @property
    def info(self) -> CacheInfo:
        with self.turn:
            return CacheInfo(self.hits, self.misses, len(self.slots), self.capacity)

    def clear(self) -> None:
        """Forget all words."""
        with self.turn:
            self.slots.clear()

    def vectors(self, words: Sequence[str], encode: Callable[[Sequence[str]], Tensor]) -> Tensor:
        """The vectors of distinct words (U, P); `encode` is asked for those not known."""
        known: list[int] = []
        slots: list[int] = []
        missing: list[int] = []
        with self.turn:
            if not self.slots:
                missing.extend(range(len(words)))
            for k, word in enumerate(words if self.slots else ()):
                slot = self.slots.pop(word, None)
                if slot is None:
                    missing.append(k)
                else:
                    self.slots[word] = slot  # now the most recently used
                    known.append(k)
                    slots.append(slot)
            self.hits += len(known)
            self.misses += len(missing)
            # (K, P), taken before any slot gets another word
            found = take_rows(self.table, self._on_device(slots)) if slots else self.table[:0]
        if not missing:
            return found
        new = [words[k] for k in missing] if known else words
        fresh = encode(new)  # (M, P)
        if not known:
            vectors = fresh
        else:
            vectors = fresh.new_empty(len(words), fresh.shape[1])  # (U, P)
            put_rows(vectors, self._on_device(known), found)
            put_rows(vectors, self._on_device(missing), fresh)
        self._keep(new[-self.capacity :], fresh[-self.capacity :])
        return vectors

    def _keep(self, words: Sequence[str], fresh: Tensor) -> None:
        """Give each new word a slot: an unused one, or that of the word not used for longest."""
        with self.turn:
            new = [k for k, word in enumerate(words) if word not in self.slots]  # else another thread was first
            size = len(self.slots)
            room = min(self.capacity - size, len(new))
            slots = list(range(size, size + room))
            self.slots.update(zip([words[k] for k in new[:room]], slots, strict=True))
            for k in new[room:]:
                slot = self.slots.pop(next(iter(self.slots)))
                self.slots[words[k]] = slot
                slots.append(slot)
            if len(new) < len(words):
                fresh = take_rows(fresh, self._on_device(new))
            put_rows(self.table, self._on_device(slots), fresh)

    def _on_device(self, numbers: list[int]) -> Tensor:
        return upload(np.array(numbers, dtype=np.int64), self.table.device)
