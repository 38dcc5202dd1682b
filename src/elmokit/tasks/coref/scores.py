"""How well clusters of mentions agree with the true ones: MUC, B-cubed, CEAF and their average.

The rules are those of the CoNLL-2012 shared task's reference scorer (Pradhan et al. 2014), version 8:

MUC       links: a true cluster of n mentions has n - 1 of them, so single mentions count for nothing
B-cubed   per mention: the share of its predicted cluster that is right, and of its true cluster that was found
CEAF      clusters are paired off one to one so that the sum of 2 |K and R| / (|K| + |R|) (phi 4) is largest

A mention counts when its first and its last word are right. Numerators and denominators are summed over documents
before they are divided; a division by nothing gives 0. Mentions that only one side has stay where they are. Of a true
mention that was predicted more than once, all but the first are dropped; of a mention in two true clusters, the last
counts.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Clusters = Sequence[Sequence[Hashable]]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Recall and precision as sums that were not yet divided."""

    found: float = 0.0  # of what there is
    there: float = 0.0
    right: float = 0.0  # of what was predicted
    predicted: float = 0.0

    def __add__(self, other: "Ratios") -> "Ratios":
        return Ratios(
            self.found + other.found,
            self.there + other.there,
            self.right + other.right,
            self.predicted + other.predicted,
        )

    @property
    def recall(self) -> float:
        return self.found / self.there if self.there else 0.0

    @property
    def precision(self) -> float:
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True, slots=True)
class CorefScores:
    """The three measures, and how many mentions were found at all."""

    muc: Ratios = field(default_factory=Ratios)
    b_cubed: Ratios = field(default_factory=Ratios)
    ceaf: Ratios = field(default_factory=Ratios)
    mentions: Ratios = field(default_factory=Ratios)

    def __add__(self, other: "CorefScores") -> "CorefScores":
        return CorefScores(
            self.muc + other.muc,
            self.b_cubed + other.b_cubed,
            self.ceaf + other.ceaf,
            self.mentions + other.mentions,
        )

    @property
    def average(self) -> float:
        """The mean of the three F1, the score of the shared task."""
        return (self.muc.f1 + self.b_cubed.f1 + self.ceaf.f1) / 3


def score_clusters(documents: Iterable[tuple[Clusters, Clusters]]) -> CorefScores:
    """True and predicted clusters, document by document."""
    total = CorefScores()
    for gold, predicted in documents:
        total += score_document(gold, predicted)
    return total


def score_document(gold: Clusters, predicted: Clusters) -> CorefScores:
    """One document. A mention is anything that can be compared, such as its first and last word."""
    gold = [cluster for cluster in gold if cluster]
    home = {mention: k for k, cluster in enumerate(gold) for mention in cluster}
    predicted = _without_repeats(predicted, home)
    return CorefScores(
        _muc(gold, predicted, home), _b_cubed(gold, predicted, home), _ceaf(gold, predicted), _mentions(home, predicted)
    )


def assign(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The column of each row, no column twice, so that the sum of values is largest; needs no more rows than columns.

    The Hungarian method by shortest augmenting paths: rows come one by one, and each may push others to new columns.
    """
    rows, columns = values.shape
    cost = -values
    u, v = np.zeros(rows + 1), np.zeros(columns + 1)
    owner = np.full(columns + 1, rows, dtype=np.int64)  # the row of each column; `rows` stands for none
    for row in range(rows):
        owner[columns] = row  # the path begins at a column that is not there
        least, before = np.full(columns, np.inf), np.full(columns, columns, dtype=np.int64)
        visited = np.zeros(columns + 1, dtype=bool)
        at = columns
        while owner[at] != rows:
            visited[at] = True
            slack = cost[owner[at]] - u[owner[at]] - v[:columns]  # (columns,)
            nearer = (slack < least) & ~visited[:columns]
            least[nearer], before[nearer] = slack[nearer], at
            following = int(np.argmin(np.where(visited[:columns], np.inf, least)))
            step = least[following]
            u[owner[visited]] += step
            v[visited] -= step
            least[~visited[:columns]] -= step
            at = following
        while at != columns:
            owner[at] = owner[before[at]]
            at = int(before[at])
    taken = np.flatnonzero(owner[:columns] != rows)
    picked = np.empty(rows, dtype=np.int64)
    picked[owner[taken]] = taken
    return picked


def _without_repeats(predicted: Clusters, home: dict[Hashable, int]) -> list[list[Hashable]]:
    seen: set[Hashable] = set()
    kept: list[list[Hashable]] = []
    for cluster in predicted:
        first: list[Hashable] = []
        for mention in cluster:
            if mention not in home or mention not in seen:
                first.append(mention)
            seen.add(mention)
        if first:
            kept.append(first)
    return kept


def _muc(gold: Clusters, predicted: Clusters, home: dict[Hashable, int]) -> Ratios:
    shares = [Counter(home[m] for m in cluster if m in home) for cluster in predicted]
    links = sum(n - 1 for share in shares for n in share.values())
    return Ratios(links, sum(len(c) - 1 for c in gold), links, sum(len(c) - 1 for c in predicted))


def _b_cubed(gold: Clusters, predicted: Clusters, home: dict[Hashable, int]) -> Ratios:
    found = right = 0.0
    for cluster in predicted:
        for true, n in Counter(home[m] for m in cluster if m in home).items():
            common = sum(m in gold[true] for m in cluster)  # more than n where a mention has two true clusters
            found += n * common / len(gold[true])
            right += n * common / len(cluster)
    return Ratios(found, sum(map(len, gold)), right, sum(map(len, predicted)))


def _ceaf(gold: Clusters, predicted: Clusters) -> Ratios:
    if not gold or not predicted:
        return Ratios(0, len(gold), 0, len(predicted))
    alike = np.zeros((len(gold), len(predicted)))
    for i, true in enumerate(gold):
        for j, guess in enumerate(predicted):
            alike[i, j] = 2 * sum(m in guess for m in true) / (len(true) + len(guess))
    if len(gold) > len(predicted):
        alike = alike.T
    total = float(alike[np.arange(len(alike)), assign(alike)].sum())
    return Ratios(total, len(gold), total, len(predicted))


def _mentions(home: dict[Hashable, int], predicted: Clusters) -> Ratios:
    guessed = {m for cluster in predicted for m in cluster}
    right = len(guessed & home.keys())
    return Ratios(right, len(home), right, len(guessed))
