"""The senses of one word: its occurrences in a corpus, grouped by their vectors.

Vectors are taken as directions from the mean of all occurrences, in the few dimensions in which they vary most, and
grouped by k-means. The number of groups is given, or the one with the best silhouette; if that is low, all occurrences
are one group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.kmeans import group_directions
from elmokit.analysis.neighbours import require_word
from elmokit.encoders import Encoder
from elmokit.encoders.encoder import Layers
from elmokit.errors import InputError
from elmokit.index import Index
from elmokit.layers import Vectors, unit_rows
from elmokit.tasks.run import spaced
from elmokit.text import Sentence

COPIES = 10  # times as many occurrences as wanted are looked at for copies of a sentence


@dataclass(frozen=True, slots=True)
class SensesConfig:
    """`clusters` None: from 1 to `most`, by silhouette."""

    layers: Layers = "top"
    clusters: int | None = None
    most: int = 6
    silhouette: float = 0.2  # of the best grouping at least; below it, all are one sense
    dimensions: int = 10  # that vary most; the others are mostly noise, in which all vectors are equally far apart
    uses: int = 500  # at most, evenly spaced
    examples: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clusters is not None and self.clusters < 1:
            raise InputError(f"{self.clusters} clusters; expected 1 or more")


class Use(NamedTuple):
    """The word in a sentence."""

    sentence: Sentence
    position: int

    @property
    def left(self) -> str:
        return " ".join(self.sentence.tokens[: self.position])

    @property
    def word(self) -> str:
        return self.sentence.tokens[self.position]

    @property
    def right(self) -> str:
        return " ".join(self.sentence.tokens[self.position + 1 :])


@dataclass(frozen=True, slots=True)
class SenseGroup:
    """A group of uses, the largest group first; examples are the uses nearest to its middle, the nearest first."""

    uses: tuple[int, ...]  # numbers of them
    examples: tuple[int, ...]
    silhouette: float  # mean over its uses: 1 far from all others, 0 between two groups


@dataclass(frozen=True, slots=True)
class WordSenses:
    """The uses, their groups, and a place in the plane for each use."""

    uses: tuple[Use, ...]
    groups: tuple[SenseGroup, ...]
    silhouettes: dict[int, float]  # by number of groups, as far as they were tried
    points: NDArray[np.float64]  # (uses, 2): the two directions in which the vectors vary most
    explained: tuple[float, float]  # the shares of all variance that these two have


def find_uses(sentences: Iterable[Sentence], word: str) -> list[Use]:
    """Every place of the word, in any case; a repeated sentence counts once."""
    folded, seen = word.casefold(), set[tuple[str, ...]]()
    found = []
    for sentence in sentences:
        places = [k for k, token in enumerate(sentence.tokens) if token.casefold() == folded]
        if places and sentence.tokens not in seen:
            seen.add(sentence.tokens)
            found += [Use(sentence, place) for place in places]
    return found


def group_senses(encoder: Encoder, uses: Sequence[Use], *, config: SensesConfig | None = None) -> WordSenses:
    """Embed the uses of a word and group them."""
    config = config or SensesConfig()
    if len(uses) < 2:
        raise InputError(f"the word occurs {len(uses)} times in the text; senses need at least 2 uses to compare")
    uses = spaced(uses, config.uses)
    stream = encoder.stream([use.sentence for use in uses], layers=config.layers)
    vectors = np.stack([v[use.position] for use, (_, v) in zip(uses, stream, strict=True)])  # (n, D)
    return group_vectors(vectors, uses, config)


def group_indexed(index: Index, word: str, *, config: SensesConfig | None = None) -> WordSenses:
    """The same of a word in an index, in any case, with the vectors that it holds: no model is needed.

    Each use's sentence is in three pieces: what is before the word, the word, what is after it.
    """
    config = config or SensesConfig()
    spelled = require_word(index, word)
    spelled = [other for other in index.words if other.casefold() == spelled[0].casefold()]
    rows = np.sort(np.concatenate([index.rows_of(spelling) for spelling in spelled]))  # (n,)
    distinct: dict[tuple[str, int], tuple[int, Use]] = {}
    for row in spaced(rows.tolist(), COPIES * config.uses):
        at = index.occurrence(row)
        pieces = Sentence.cut(at.text, [(0, at.start), (at.start, at.end), (at.end, len(at.text))])
        distinct.setdefault((at.text, at.start), (row, Use(pieces, 1)))
    if len(distinct) < 2:
        raise InputError(f"{word!r} occurs once in {index.folder}; senses need at least 2 uses to compare")
    chosen = spaced(list(distinct.values()), config.uses)
    vectors = index.vectors(np.array([row for row, _ in chosen])).astype(np.float32)  # (n, D)
    return group_vectors(vectors, [use for _, use in chosen], config)


def group_vectors(vectors: Vectors, uses: Sequence[Use], config: SensesConfig) -> WordSenses:
    """The same with vectors (n, D) made before."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    kept = (u * s)[:, : config.dimensions]  # (n, d)
    unit = unit_rows(kept).astype(np.float32)
    total = float((s**2).sum()) or 1.0
    labels, tried = _grouped(unit, config)
    each = silhouettes(unit, labels)
    groups = []
    for k in range(labels.max() + 1):
        members = np.flatnonzero(labels == k)
        middle = unit[members].mean(axis=0)
        nearest = members[np.argsort(-(unit[members] @ middle), kind="stable")][: config.examples]
        groups.append(SenseGroup(tuple(members.tolist()), tuple(nearest.tolist()), float(each[members].mean())))
    points = np.zeros((len(vectors), 2))
    points[:, : min(2, kept.shape[1])] = kept[:, :2]
    first, second = (float(x**2) / total for x in (*s[:2], 0.0, 0.0)[:2])
    return WordSenses(tuple(uses), tuple(groups), tried, points, (first, second))


def silhouettes(unit: Vectors, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """How well each direction fits its group (Rousseeuw 1987), by cosine distance: from -1 to 1. (n,)

    (b - a) / max(a, b), a the mean distance to the others of its group, b to the nearest other group; 0 for a group
    of one, and where there is one group only.
    """
    counts = np.bincount(labels)
    if len(counts) < 2:
        return np.zeros(len(labels))
    distances = 1.0 - (unit @ unit.T).astype(np.float64)  # (n, n)
    np.fill_diagonal(distances, 0)
    sums = np.stack([distances[:, labels == k].sum(axis=1) for k in range(len(counts))], axis=1)  # (n, groups)
    own = counts[labels]
    rows = np.arange(len(labels))
    inside = sums[rows, labels] / np.maximum(own - 1, 1)
    means = sums / counts
    means[rows, labels] = np.inf
    outside = means.min(axis=1)
    larger = np.maximum(inside, outside)
    fit = np.divide(outside - inside, larger, out=np.zeros_like(larger), where=larger > 0)
    fitted: NDArray[np.float64] = np.where(own > 1, fit, 0.0)
    return fitted


def _grouped(unit: Vectors, config: SensesConfig) -> tuple[NDArray[np.int64], dict[int, float]]:
    """The group of each vector, and how well other numbers of groups did."""
    if config.clusters is not None:
        labels = group_directions(unit, config.clusters, seed=config.seed).labels
        return labels, {int(labels.max()) + 1: float(silhouettes(unit, labels).mean())}
    found = {
        k: group_directions(unit, k, seed=config.seed).labels for k in range(2, min(config.most, len(unit) - 1) + 1)
    }
    tried = {k: float(silhouettes(unit, labels).mean()) for k, labels in found.items()}
    best = max(tried, key=lambda k: tried[k], default=1)
    if best == 1 or tried[best] < config.silhouette:
        return np.zeros(len(unit), dtype=np.int64), tried
    return found[best], tried
