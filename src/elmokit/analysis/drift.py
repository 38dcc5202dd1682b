"""How the use of words differs between two corpora or periods: the task of lexical semantic change.

Each corpus is an index of the same model and layers. Of a word's occurrences in both, as directions from the mean:

apd   the mean cosine distance between an occurrence in one corpus and one in the other; high for words of many uses
prt   the cosine distance of the two means ("prototypes"): 0 if the word is used alike on the whole. Of few occurrences,
      or of varied ones, the means lie apart by chance, so it is above 0 for words that did not change
net   apd less the mean distance of two occurrences of one corpus: 0 on average for a word that did not change, whatever
      its variety and number. It ranks best where the truth is known (benchmarks/drift.py), so it is the default
jsd   the Jensen-Shannon divergence, in bits from 0 to 1, of the shares of groups (k-means over both): a new use shows.
      Rough: another seed, or vectors that differ in the last digits, may group otherwise and move it by 0.3
p     the share of random swaps between the corpora with a prt as large: what chance alone does; p_apd, p_net and p_jsd
      are the same for the others. Look at them first, since few occurrences give large distances by chance
q     p of the measure that the list is ranked by, corrected for the number of words (Benjamini and Hochberg)

References: Giulianelli et al. 2020 (ACL), Kutuzov and Giulianelli 2020 (SemEval task 1).
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.chance import chances_of, cosine_distances, false_discovery_rates
from elmokit.analysis.intervals import Interval, score_interval
from elmokit.analysis.kmeans import group_directions
from elmokit.analysis.neighbours import require_word
from elmokit.analysis.pairs import spearman
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.formats import read_lines
from elmokit.index import Index, Occurrence
from elmokit.index.exact import centred
from elmokit.layers import Vectors, unit_rows

Measure = Literal["net", "prt", "apd", "jsd"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


@dataclass(frozen=True, slots=True)
class DriftConfig:
    """At most `per_word` occurrences per corpus count, evenly spaced; words below `min_count` in either are skipped."""

    by: Measure = "net"  # what the list is ranked by
    min_count: int = 10
    per_word: int = 200
    clusters: int = 5
    shuffles: int = 1000  # random swaps for p, which is no smaller than 1 / (1 + shuffles)
    examples: int = 3  # occurrences shown of each corpus
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in MEASURES:
            raise InputError(f"cannot rank by {self.by!r}; expected {', '.join(MEASURES)}")
        if self.shuffles < 1:
            raise InputError(f"{self.shuffles} shuffles; p needs at least one")
        if self.min_count < 2 or self.per_word < self.min_count:
            raise InputError(
                f"min_count {self.min_count} and per_word {self.per_word}: expected 2 or more, and no fewer looked at "
                "than are needed"
            )


@dataclass(frozen=True, slots=True)
class WordDrift:
    """One word. The examples are the occurrences of each corpus that are least like the other corpus."""

    word: str
    first: int  # occurrences in the first corpus
    second: int
    apd: float
    prt: float
    jsd: float
    p: float  # of prt
    first_examples: tuple[Occurrence, ...]
    second_examples: tuple[Occurrence, ...]
    net: float = 0.0
    p_apd: float = 1.0
    p_net: float = 1.0
    p_jsd: float = 1.0
    q: float = 1.0  # p of the measure that the list is ranked by, corrected for the number of words in it

    def chance(self, measure: Measure) -> float:
        """p of a measure."""
        return self.p if measure == "prt" else float(getattr(self, f"p_{measure}"))


class Agreement(NamedTuple):
    """How a measure's ranking agrees with a gold ranking."""

    measure: Measure
    rho: float  # Spearman
    interval: Interval  # 95%, words resampled
    words: int


def measure_drift(
    first: Index,
    second: Index,
    *,
    words: Iterable[str] | None = None,
    config: DriftConfig | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> list[WordDrift]:
    """Words by how much their use differs, the most first; `told` is called with (words done, words in all).

    Without `words`: all words that are frequent enough in both corpora. A given word that is missing in one of them is
    an error; one that is too rare is skipped.
    """
    config = config or DriftConfig()
    _check_alike(first, second)
    if words is None:
        common = first.words.keys() & second.words.keys()
    else:
        common = {spelling for word in words for spelling in _required(first, second, word)}
    chosen = sorted(word for word in common if min(first.words[word], second.words[word]) >= config.min_count)
    total = max(len(first) + len(second), 1)
    mean = np.asarray((first.mean * len(first) + second.mean * len(second)) / total, dtype=np.float32)  # (D,)
    found = []
    for done, word in enumerate(chosen, 1):
        found.append(_measure(first, second, word, mean, config))
        told(done, len(chosen))
    rates = false_discovery_rates([drift.chance(config.by) for drift in found])
    found = [replace(drift, q=rate) for drift, rate in zip(found, rates, strict=True)]
    return sorted(found, key=lambda drift: (-getattr(drift, config.by), drift.word))


def read_gold(path: str | Path) -> dict[str, float]:
    """Graded change from a file with a word, a tab and a number per line, as in SemEval 2020's task 1."""
    gold: dict[str, float] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        word, _, value = line.strip().rpartition("\t")
        try:
            score = float(value)
        except ValueError:
            score = float("nan")
        if not word or not np.isfinite(score) or word in gold:
            what = f"{word!r} a second time" if word in gold else repr(line[:40])
            raise FormatError(f"{path}, line {number}: {what}, expected a new word, a tab and a number")
        gold[word] = score
    if len(gold) < 2:
        raise FormatError(f"{path}: holds {len(gold)} words; a ranking needs two or more")
    return gold


def compare_gold(found: Iterable[WordDrift], gold: dict[str, float], *, seed: int = 0) -> list[Agreement]:
    """Spearman's rho of each measure against gold scores, over the words that both have; words as they are spelled."""
    both = [drift for drift in found if drift.word in gold]
    if len(both) < 3:
        raise InputError(f"{len(both)} words of the gold ranking were measured; a correlation needs 3 or more")
    truth = np.array([gold[drift.word] for drift in both])

    def agreement(measure: Measure) -> Agreement:
        values = np.array([getattr(drift, measure) for drift in both])
        interval = score_interval(lambda drawn: spearman(values[drawn], truth[drawn]), len(both), seed=seed)
        return Agreement(measure, spearman(values, truth), interval, len(both))

    return [agreement(measure) for measure in MEASURES]


def mean_distance(first: Vectors, second: Vectors) -> float:
    """APD of directions (n, D) and (m, D): the mean over all pairs of 1 minus their cosine."""
    return float(1 - first.mean(axis=0) @ second.mean(axis=0))


def net_distance(first: Vectors, second: Vectors) -> float:
    """APD less the mean distance within the corpora, of directions (n, D) and (m, D), two or more of each."""
    within = [1 - (np.square(rows.sum(axis=0)).sum() / len(rows) - 1) / (len(rows) - 1) for rows in (first, second)]
    return mean_distance(first, second) - float(sum(within)) / 2


def distance_of_means(first: Vectors, second: Vectors) -> float:
    """PRT of directions (n, D) and (m, D)."""
    return float(cosine_distances(first.mean(axis=0)[None], second.mean(axis=0)[None])[0])


def share_divergence(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    """JSD in bits of the shares of labels (n,) and (m,), numbered from 0."""
    n = int(max(first.max(initial=0), second.max(initial=0))) + 1
    shares = np.stack([np.bincount(first, minlength=n) / len(first), np.bincount(second, minlength=n) / len(second)])
    half = np.broadcast_to(shares.mean(axis=0), shares.shape)
    there = shares > 0
    return float((shares[there] * np.log2(shares[there] / half[there])).sum() / 2)


def _measure(first: Index, second: Index, word: str, mean: Vectors, config: DriftConfig) -> WordDrift:
    rows = [_some(index.rows_of(word), config.per_word) for index in (first, second)]
    a, b = (centred(index.vectors(some), mean) for index, some in zip((first, second), rows, strict=True))
    groups = group_directions(np.concatenate([a, b]), config.clusters, seed=config.seed)
    chances = chances_of(a, b, groups.labels, shuffles=config.shuffles, seed=config.seed)
    lean = unit_rows(a.mean(axis=0)) - unit_rows(b.mean(axis=0))  # (D,), from the second to the first
    return WordDrift(
        word,
        first.words[word],
        second.words[word],
        mean_distance(a, b),
        distance_of_means(a, b),
        share_divergence(groups.labels[: len(a)], groups.labels[len(a) :]),
        chances.prt,
        _examples(first, rows[0], a @ lean, config.examples),
        _examples(second, rows[1], -(b @ lean), config.examples),
        net_distance(a, b),
        chances.apd,
        chances.net,
        chances.jsd,
    )


def _examples(index: Index, rows: NDArray[np.int64], lean: Vectors, count: int) -> tuple[Occurrence, ...]:
    """The first rows with different sentences."""
    best: dict[str, Occurrence] = {}
    for k in np.argsort(-lean, kind="stable").tolist():
        if len(best) == count:
            break
        occurrence = index.occurrence(int(rows[k]), float(lean[k]))
        best.setdefault(" ".join(occurrence.text.split()), occurrence)
    return tuple(best.values())


def _some(rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Evenly spaced, so that all parts of a corpus are represented."""
    if len(rows) <= limit:
        return rows
    return rows[np.linspace(0, len(rows) - 1, limit).round().astype(np.int64)]


def _required(first: Index, second: Index, word: str) -> set[str]:
    return set(require_word(first, word)) & set(require_word(second, word))


def _check_alike(first: Index, second: Index) -> None:
    for what in ("model", "tokenizer"):
        one, other = getattr(first.manifest, what), getattr(second.manifest, what)
        if one != other:
            raise InputError(f"{first.folder} and {second.folder} have another {what} each; make both with the same")
    if set(first.manifest.arithmetic) ^ set(second.manifest.arithmetic):
        said = (", ".join(index.manifest.arithmetic) or "not recorded" for index in (first, second))
        warnings.warn(
            f"the vectors of {first.folder} and {second.folder} were made with other arithmetic ({'; '.join(said)}): "
            "some of the difference may come from that",
            ElmokitWarning,
            stacklevel=1,
        )
    if first.settings.layers != second.settings.layers:
        raise InputError(
            f"{first.folder} holds layers {first.settings.layers!r}, {second.folder} {second.settings.layers!r}; make "
            "both with the same"
        )
