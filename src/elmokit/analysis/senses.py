"""Word senses by nearest centroid (Peters et al. 2018, section 5.3, after Melamud et al. 2016).

The vectors of all training occurrences of a sense are averaged; a word takes the sense of its lemma whose average is
nearest by cosine. A lemma that training never saw takes its first sense in WordNet. The vector of a multiword is the
mean of its words'.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders import Encoder
from elmokit.formats.senses import Lemma, SenseIndex, SenseInstance, SenseSentence

Vectors = NDArray[np.float32]


class SenseCentroids:
    """The average vector of each sense, layer by layer, growing as occurrences are added."""

    def __init__(self) -> None:
        self.sums: dict[str, Vectors] = {}  # (L, D) by sense key
        self.counts: Counter[str] = Counter()
        self.senses: dict[Lemma, list[str]] = {}  # in the order they were met

    def __contains__(self, lemma: object) -> bool:
        return lemma in self.senses

    def add(self, instance: SenseInstance, layers: Vectors) -> None:
        """One occurrence in a sentence with these layers (L, T, D); it counts for each of its senses."""
        vector = layers[:, instance.start : instance.end].mean(axis=1, dtype=np.float32)  # (L, D)
        for key in instance.keys:
            if key in self.sums:
                self.sums[key] += vector
            else:
                self.sums[key] = vector.copy()
                self.senses.setdefault(instance.lemma, []).append(key)
            self.counts[key] += 1

    def nearest(self, instance: SenseInstance, layers: Vectors) -> tuple[str, ...]:
        """The sense that each layer tells; the lemma must be known."""
        vector = layers[:, instance.start : instance.end].mean(axis=1, dtype=np.float32)  # (L, D)
        senses = self.senses[instance.lemma]
        centroids = np.stack([self.sums[key] for key in senses])  # (senses, L, D); cosine does not mind the count
        lengths = np.maximum(np.linalg.norm(centroids, axis=2), np.finfo(np.float32).tiny)  # (senses, L)
        cosines = np.einsum("sld,ld->sl", centroids, vector) / lengths  # (senses, L), up to the vector's own length
        return tuple(senses[k] for k in cosines.argmax(axis=0))


@dataclass(frozen=True, slots=True)
class SenseScores:
    """Shares of right answers. Covered are instances whose lemma and part of speech the training text has."""

    instances: int
    covered: int
    layer_names: tuple[str, ...]
    layers: tuple[float, ...]  # covered instances
    layers_all: tuple[float, ...]  # all instances, those not covered by WordNet's first sense
    first_sense: float  # WordNet's first sense, covered instances
    first_sense_all: float
    most_frequent: float  # the most frequent sense of the training text, covered instances
    most_frequent_all: float  # and WordNet's first sense for the others


def train_centroids(
    encoder: Encoder,
    sentences: Sequence[SenseSentence],
    *,
    batch_tokens: int | None = None,
    told: Callable[[int, int], None] | None = None,
) -> SenseCentroids:
    """Embed the sentences and average their senses. `told` hears (sentences done, sentences in all)."""
    centroids = SenseCentroids()
    stream = encoder.stream([s.sentence for s in sentences], layers="all", batch_tokens=batch_tokens)
    for done, (tagged, (_, layers)) in enumerate(zip(sentences, stream, strict=True), 1):
        for instance in tagged.instances:
            centroids.add(instance, layers)
        if told is not None:
            told(done, len(sentences))
    return centroids


def score_senses(
    encoder: Encoder,
    centroids: SenseCentroids,
    sentences: Sequence[SenseSentence],
    index: SenseIndex,
    *,
    frequencies: Counter[str] | None = None,
    batch_tokens: int | None = None,
) -> SenseScores:
    """Answer every instance, by layer. `frequencies` of senses are the centroids' own counts unless given."""
    frequent = most_frequent_senses(centroids.counts if frequencies is None else frequencies, centroids.senses, index)
    depth = len(encoder.layer_names)
    known, unknown = 0, 0
    right, right_unknown = np.zeros(depth + 2), 0  # by layer, by first sense, by most frequent sense
    stream = encoder.stream([s.sentence for s in sentences], layers="all", batch_tokens=batch_tokens)
    for tagged, (_, layers) in zip(sentences, stream, strict=True):
        for instance in tagged.instances:
            first = index.first.get(instance.lemma)
            if instance.lemma in centroids:
                answers = (*centroids.nearest(instance, layers), first, frequent[instance.lemma])
                right += [answer in instance.keys for answer in answers]
                known += 1
            else:
                right_unknown += first in instance.keys
                unknown += 1
    covered, whole = right / max(known, 1), (right + right_unknown) / max(known + unknown, 1)
    return SenseScores(
        known + unknown,
        known,
        encoder.layer_names,
        tuple(covered[:depth].tolist()),
        tuple(whole[:depth].tolist()),
        float(covered[depth]),
        float(whole[depth]),
        float(covered[depth + 1]),
        float(whole[depth + 1]),
    )


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
