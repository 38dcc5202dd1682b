"""`Anchors`: one vector per word and layer, the mean over a word's occurrences in a corpus (Schuster et al. 2019).

They come from text, or from an index that holds all layers side by side (`elmokit index --layers concat:0..-1`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.index import Index, word_means
from elmokit.layers import LayerChoice, Vectors
from elmokit.text import Sentence

ROOM = 4  # times the limit: so many words are summed before rare ones are dropped


@dataclass(frozen=True)
class Anchors:
    """Words, the most frequent first, with a mean vector per layer."""

    words: tuple[str, ...]
    vectors: Vectors  # (V, L, D)
    model: str  # the encoder's fingerprint
    source: str  # where it was read from
    layer_names: tuple[str, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        return {word: k for k, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    @property
    def depth(self) -> int:
        return int(self.vectors.shape[1])


def text_anchors(
    encoder: Encoder, sentences: Iterable[Sentence], *, min_count: int = 5, limit: int = 20_000
) -> Anchors:
    """The anchors of the `limit` most frequent words of a text, those with a letter or digit in them.

    Memory holds four times as many. When there are more, those seen once or twice so far are dropped.
    """
    places: dict[str, int] = {}
    counts: Counter[str] = Counter()
    sums = np.zeros((1024, encoder.depth, encoder.width), dtype=np.float32)  # (room, L, D)
    for sentence, layers in encoder.stream(sentences, layers="all"):
        kept = [t for t, token in enumerate(sentence.tokens) if any(map(str.isalnum, token))]
        for t in kept:
            place = places.setdefault(sentence.tokens[t], len(places))
            counts[sentence.tokens[t]] += 1
            if place == len(sums):
                sums = np.concatenate([sums, np.zeros_like(sums)])
            sums[place] += layers[:, t]
        if len(places) > ROOM * limit:
            places, sums = _without_rare(places, counts, sums, limit)
    chosen = [word for word, count in counts.most_common() if count >= min_count and word in places][:limit]
    if len(chosen) < 2:
        raise InputError(f"fewer than two words stand {min_count} times in the text; give more of it")
    rows = sums[[places[word] for word in chosen]]
    rows /= np.array([counts[word] for word in chosen], dtype=np.float32)[:, None, None]
    return Anchors(tuple(chosen), rows, encoder.fingerprint, encoder.source, encoder.layer_names)


def index_anchors(index: Index, encoder: Encoder, *, min_count: int = 5, limit: int = 20_000) -> Anchors:
    """The same out of an index with all layers of this model side by side."""
    index.manifest.check_encoder(encoder, index.folder)
    choice = LayerChoice.parse(index.settings.layers)
    every = encoder.depth == 1 or choice.kind == "concat"
    if not every or choice.indices(encoder.depth) != list(range(encoder.depth)):
        raise InputError(
            f"{index.folder} holds layers {index.settings.layers!r}; an alignment needs them all: make it with "
            "--layers concat:0..-1"
        )
    table = word_means(index, min_count=min_count, limit=limit)
    rows = np.asarray(table.vectors).reshape(len(table), encoder.depth, encoder.width)
    return Anchors(tuple(table.words), rows, encoder.fingerprint, encoder.source, encoder.layer_names)


def _without_rare(
    places: dict[str, int], counts: Counter[str], sums: Vectors, limit: int
) -> tuple[dict[str, int], Vectors]:
    """The words seen three times or more, or the `limit` most frequent where these are still too many."""
    kept = [word for word in places if counts[word] > 2]
    if len(kept) > 2 * limit:
        kept = sorted(kept, key=lambda word: (-counts[word], places[word]))[: 2 * limit]
    rows = sums[[places[word] for word in kept]]
    for word in places.keys() - set(kept):
        del counts[word]
    room = np.zeros((max(2 * len(kept), 1024), *sums.shape[1:]), dtype=np.float32)
    room[: len(rows)] = rows
    return {word: k for k, word in enumerate(kept)}, room
