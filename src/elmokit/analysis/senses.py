"""Word senses by nearest centroid (Peters et al. 2018, section 5.3, after Melamud et al. 2016).

The vectors of all training occurrences of a sense are averaged; a word takes the sense of its lemma whose average is
nearest by cosine. A lemma that training never saw takes its first sense in WordNet. The vector of a multiword is the
mean of its words'.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.analysis.intervals import Interval, mean_interval
from elmokit.analysis.pairs import DIGITS
from elmokit.analysis.sense_files import Lemma, SenseIndex, SenseInstance, SenseSentence
from elmokit.analysis.views import View
from elmokit.encoders import Encoder
from elmokit.layers import Vectors

Layers = Vectors | Sequence[Vectors]  # of a sentence, by view: (V, T, D), or several (T, D) of different width


class SenseCentroids:
    """The average vector of each sense, view by view, growing as occurrences are added."""

    def __init__(self) -> None:
        self.sums: dict[str, list[Vectors]] = {}  # by sense key, a vector (D,) for each view
        self.counts: Counter[str] = Counter()
        self.senses: dict[Lemma, list[str]] = {}  # in the order they were met

    def __contains__(self, lemma: object) -> bool:
        return lemma in self.senses

    def add(self, instance: SenseInstance, layers: Layers) -> None:
        """One occurrence in a sentence with these layers; it counts for each of its senses."""
        vectors = _average(instance, layers)
        for key in instance.keys:
            if key in self.sums:
                for total, vector in zip(self.sums[key], vectors, strict=True):
                    total += vector
            else:
                self.sums[key] = [vector.copy() for vector in vectors]
                self.senses.setdefault(instance.lemma, []).append(key)
            self.counts[key] += 1

    def nearest(self, instance: SenseInstance, layers: Layers) -> tuple[str, ...]:
        """The sense that each view finds, of equally near ones the first met; the lemma must be known."""
        senses = self.senses[instance.lemma]
        found = []
        for view, vector in enumerate(_average(instance, layers)):
            centroids = np.stack([self.sums[key][view] for key in senses])  # (senses, D); cosine ignores the count
            lengths = np.linalg.norm(centroids, axis=1) * np.linalg.norm(vector)  # (senses,)
            cosines = centroids @ vector / np.maximum(lengths, np.finfo(np.float32).tiny)  # (senses,)
            found.append(senses[int(cosines.round(DIGITS).argmax())])  # no rounding error is to decide
        return tuple(found)


def _average(instance: SenseInstance, layers: Layers) -> list[Vectors]:
    """The mean of the instance's words, a vector (D,) for each view."""
    return [view[instance.start : instance.end].mean(axis=0, dtype=np.float32) for view in layers]


@dataclass(frozen=True, slots=True)
class SenseScores:
    """Shares of right answers. Covered are instances whose lemma and part of speech the training text has."""

    instances: int
    covered: int
    layer_names: tuple[str, ...]  # or of the views
    layers: tuple[float, ...]  # covered instances
    layers_all: tuple[float, ...]  # all instances, those not covered by WordNet's first sense
    first_sense: float  # WordNet's first sense, covered instances
    first_sense_all: float
    most_frequent: float  # the most frequent sense of the training text, covered instances
    most_frequent_all: float  # and WordNet's first sense for the others
    intervals: tuple[Interval, ...] = ()  # of `layers`, over the covered instances


def train_centroids(
    encoder: Encoder,
    sentences: Sequence[SenseSentence],
    *,
    views: Sequence[View] | None = None,
    batch_tokens: int | None = None,
    told: Callable[[int, int], None] | None = None,
) -> SenseCentroids:
    """Embed the sentences and average their senses, in each layer unless `views` are given.

    `told` is called with (sentences done, sentences in all).
    """
    centroids = SenseCentroids()
    stream = encoder.stream([s.sentence for s in sentences], layers="all", batch_tokens=batch_tokens)
    for done, (tagged, (_, layers)) in enumerate(zip(sentences, stream, strict=True), 1):
        seen = _seen(layers, views)
        for instance in tagged.instances:
            centroids.add(instance, seen)
        if told is not None:
            told(done, len(sentences))
    return centroids


def score_senses(
    encoder: Encoder,
    centroids: SenseCentroids,
    sentences: Sequence[SenseSentence],
    index: SenseIndex,
    *,
    views: Sequence[View] | None = None,
    frequencies: Counter[str] | None = None,
    batch_tokens: int | None = None,
) -> SenseScores:
    """Answer every instance, by the views that the centroids were trained with.

    `frequencies` of senses are the centroids' own counts unless given.
    """
    frequent = most_frequent_senses(centroids.counts if frequencies is None else frequencies, centroids.senses, index)
    names = encoder.layer_names if views is None else tuple(view.name for view in views)
    depth = len(names)
    answered: list[list[bool]] = []  # by layer, by first sense, by most frequent sense: right or not
    unknown, right_unknown = 0, 0
    stream = encoder.stream([s.sentence for s in sentences], layers="all", batch_tokens=batch_tokens)
    for tagged, (_, layers) in zip(sentences, stream, strict=True):
        seen = _seen(layers, views)
        for instance in tagged.instances:
            first = index.first.get(instance.lemma)
            if instance.lemma in centroids:
                answers = (*centroids.nearest(instance, seen), first, frequent[instance.lemma])
                answered.append([answer in instance.keys for answer in answers])
            else:
                right_unknown += first in instance.keys
                unknown += 1
    rights = np.array(answered, dtype=bool).reshape(-1, depth + 2)  # (covered, answers)
    known, right = len(rights), rights.sum(axis=0)
    covered, whole = right / max(known, 1), (right + right_unknown) / max(known + unknown, 1)
    return SenseScores(
        known + unknown,
        known,
        names,
        tuple(covered[:depth].tolist()),
        tuple(whole[:depth].tolist()),
        float(covered[depth]),
        float(whole[depth]),
        float(covered[depth + 1]),
        float(whole[depth + 1]),
        tuple(mean_interval(rights[:, k]) for k in range(depth)),
    )


def _seen(layers: Vectors, views: Sequence[View] | None) -> Layers:
    return layers if views is None else [view.of_sentence(layers) for view in views]


def count_senses(sentences: Iterable[SenseSentence]) -> Counter[str]:
    """How often each sense occurs."""
    return Counter(key for tagged in sentences for instance in tagged.instances for key in instance.keys)


def most_frequent_senses(
    frequencies: Counter[str], senses: dict[Lemma, list[str]], index: SenseIndex
) -> dict[Lemma, str]:
    """The sense of each lemma that occurs most; of equally frequent ones the first in WordNet."""
    late = len(index.numbers)  # a sense that WordNet lacks comes last
    return {
        lemma: max(keys, key=lambda key: (frequencies[key], -index.numbers.get(key, late)))
        for lemma, keys in senses.items()
    }


def few_per_sense(sentences: Iterable[SenseSentence], lemmas: Container[Lemma], *, most: int) -> list[SenseSentence]:
    """Fewer sentences to train on: those with a sense of these lemmas that fewer than `most` before them have."""
    kept: list[SenseSentence] = []
    counts: Counter[str] = Counter()
    for tagged in sentences:
        keys = [key for instance in tagged.instances if instance.lemma in lemmas for key in instance.keys]
        if any(counts[key] < most for key in keys):
            kept.append(tagged)
            counts.update(keys)
    return kept
