"""Words in context: does the cosine of two occurrences say what people say of them?

SCWS has ratings: the rank correlation says how well cosines order the pairs as people do. WiC has yes and no: a
threshold on the cosine is fitted on one part and tried on another.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.pair_files import PlacedWord, WordPair
from elmokit.analysis.views import View
from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.layers import cosine

Numbers = NDArray[np.float64]
DIGITS = 6  # of a cosine: the same vector twice has 1, not 1 and a rounding error that would order such pairs


def pair_cosines(
    encoder: Encoder, pairs: Sequence[WordPair], views: Sequence[View], *, batch_tokens: int | None = None
) -> Numbers:
    """The cosine of the two words of each pair, in each view; 0 if a vector is zero. (V, pairs)"""
    placed = [word for pair in pairs for word in (pair.first, pair.second)]
    vectors = word_vectors(encoder, placed, views, batch_tokens=batch_tokens)
    found = np.empty((len(views), len(pairs)))
    for k, (first, second) in enumerate(zip(vectors, vectors, strict=True)):  # one iterator: two at a time
        for view, (a, b) in enumerate(zip(first, second, strict=True)):
            found[view, k] = cosine(a, b)
    return found.round(DIGITS)


def word_vectors(
    encoder: Encoder, words: Sequence[PlacedWord], views: Sequence[View], *, batch_tokens: int | None = None
) -> Iterator[list[NDArray[np.float32]]]:
    """The vector of each word in each view; several words are averaged."""
    for layers in word_layers(encoder, words, batch_tokens=batch_tokens):
        yield [view.of_sentence(layers[:, None])[0] for view in views]


def word_layers(
    encoder: Encoder, words: Sequence[PlacedWord], *, batch_tokens: int | None = None
) -> Iterator[NDArray[np.float32]]:
    """All layers of each word (L, D); several words are averaged. A sentence with words in a row runs once."""
    groups = [list(group) for _, group in groupby(words, key=lambda word: word.sentence)]
    stream = encoder.stream([group[0].sentence for group in groups], layers="all", batch_tokens=batch_tokens)
    for group, (_, layers) in zip(groups, stream, strict=True):
        for word in group:
            yield layers[:, word.start : word.end].mean(axis=1, dtype=np.float32)


def spearman(first: Sequence[float] | Numbers, second: Sequence[float] | Numbers) -> float:
    """The correlation of ranks, equal values sharing the mean of theirs; 0 where one side is all equal."""
    if len(first) != len(second) or len(first) < 2:
        raise InputError(f"{len(first)} and {len(second)} values; a correlation needs two or more of each")
    a, b = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else 0.0


def ranks(values: Sequence[float] | Numbers) -> Numbers:
    """From 1 for the smallest; equal values share the mean of their ranks."""
    _, places, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Numbers = (last - (counts - 1) / 2)[places]
    return middle


def fit_threshold(cosines: Numbers, same: NDArray[np.bool_]) -> float:
    """The cosine above which the answer is "the same" that is right most often; between two values, the lowest such."""
    if len(cosines) != len(same) or not len(cosines):
        raise InputError(f"{len(cosines)} cosines for {len(same)} answers; expected one for each, and at least one")
    values = np.unique(cosines)
    cuts = np.concatenate([[values[0] - 1], (values[:-1] + values[1:]) / 2, [values[-1] + 1]])
    # Right at a cut: the differing pairs below it and the same ones above.
    below = np.searchsorted(np.sort(cosines[~same]), cuts, side="left")
    above = same.sum() - np.searchsorted(np.sort(cosines[same]), cuts, side="left")
    return float(cuts[int((below + above).argmax())])


def threshold_accuracy(cosines: Numbers, same: NDArray[np.bool_], threshold: float) -> float:
    """The share of right answers if the answer is "the same" from the threshold on."""
    return float(((cosines >= threshold) == same).mean()) if len(same) else 0.0
