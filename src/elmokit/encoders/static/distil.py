"""Static vectors made from a contextual model: word by word, or as averages over a corpus."""

from collections.abc import Iterable

import numpy as np

from elmokit.encoders.encoder import Encoder, Layers
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.formats.given import Given


def distil_words(
    encoder: Encoder, words: Iterable[str], *, layers: Layers = 0, batch_tokens: int | None = None
) -> WordTable:
    """The vector of each word on its own. ELMo's layer 0, the default, knows no context, so nothing is lost there."""
    if isinstance(words, str):
        raise InputError(f"one string was given to distil ({words!r}), expected a list of words")
    distinct = list(dict.fromkeys(words))
    stream = encoder.stream(([word] for word in distinct), layers=layers, batch_tokens=batch_tokens)
    rows = [found.vectors for found in stream]
    if not rows:
        raise InputError("no words were given to distil; expected at least one")
    return WordTable(distinct, np.concatenate(rows).astype(np.float32), f"{encoder.source}, layers {layers}")


def distil_corpus(
    encoder: Encoder,
    sentences: Given,
    *,
    layers: Layers = "average",
    min_count: int = 1,
    batch_tokens: int | None = None,
) -> WordTable:
    """The mean of a word's vectors over all places where it stands, the most frequent word first.

    Memory holds one vector per distinct word, in float64, never the corpus; words under `min_count` are left out.
    """
    places: dict[str, int] = {}
    counts = np.zeros(0, dtype=np.int64)  # (V,), with room to grow
    sums = np.zeros((0, 0))  # (V, D)
    for sentence, vectors in encoder.stream(sentences, layers=layers, batch_tokens=batch_tokens):
        if vectors.ndim != 2:
            raise InputError(
                f"layers {layers!r} keep the layers apart, expected a choice that makes one vector of them"
            )
        rows = np.array([places.setdefault(word, len(places)) for word in sentence.tokens], dtype=np.int64)
        if len(places) > len(counts):
            room = max(len(places), 2 * len(counts), 1024)
            counts = np.concatenate([counts, np.zeros(room - len(counts), dtype=np.int64)])
            grown = np.zeros((room, vectors.shape[1]))
            grown[: len(sums)] = sums if sums.size else 0
            sums = grown
        np.add.at(counts, rows, 1)
        for row, vector in zip(rows, vectors, strict=True):  # np.add.at takes many times as long for whole rows
            sums[row] += vector
    words = list(places)
    kept = sorted((k for k in range(len(words)) if counts[k] >= min_count), key=lambda k: -counts[k])
    if not kept:
        raise InputError(f"no word stands {min_count} times in the corpus; nothing to distil")
    means = (sums[kept] / counts[kept, None]).astype(np.float32)
    return WordTable([words[k] for k in kept], means, f"{encoder.source}, layers {layers}, averaged")
