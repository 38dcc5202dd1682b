"""Maps between the vector spaces of two models: a seed of word pairs, Procrustes per layer, refinement with CSLS.

1. Each model's anchors (`analysis.anchors`) are centred and brought to length 1, layer by layer.
2. Of the word pairs of the seed, the orthogonal map that brings the first words nearest to the second is found for each
   layer (Schoenemann 1966).
3. With all layers mapped, words that are each other's nearest neighbour become the next round's pairs. Near is by CSLS
   (Conneau et al. 2018): the cosine, less how near the two words are to everything. Rounds go on while a tenth of the
   seed, which no map is fitted on, comes nearer together; so a round that makes things worse is not taken.
4. Words are compared with words in the common space of the two (`analysis.common`), too, if more words of that tenth
   find their partner there than by the maps. The lexicon goes by what finds most of them: a layer, all, or that space.

Another part of the seed is held out for the test: the precision of word translation is measured on it. No map is fitted
on these pairs as such; later rounds may find them by themselves, as they may any.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.anchors import Anchors
from elmokit.analysis.common import common_space
from elmokit.config import Count, Positive, Share, check
from elmokit.encoders.alignment import AlignedModels, Alignment
from elmokit.errors import FormatError, InputError
from elmokit.formats import read_lines
from elmokit.layers import Vectors, unit_rows

Pair = tuple[str, str]
BLOCK = 1024  # rows of a table of likeness at once
LEAST = 10  # pairs that a map is fitted on
CHECKED = 10  # one seed pair in so many decides whether a round is taken, where there are five of them


@dataclass(frozen=True, slots=True)
class AlignConfig:
    """How maps are found; words are taken from the most frequent on."""

    rounds: Count = 5  # of refinement at most; 0: the seed's map
    refine_words: Positive = 5000  # of each side, that may become pairs
    search_words: Positive = 20_000  # of the target, among which translations are searched
    neighbours: Positive = 10  # of CSLS
    test: Share = 0.2  # of the seed that is held out

    def __post_init__(self) -> None:
        check(self, error=InputError)
        if not self.test < 1:
            raise InputError(f"test is {self.test}: all pairs are held out, and none is left for the map")


@dataclass(frozen=True, slots=True)
class Translation:
    """How often a held-out word's translation is the nearest word (at_1), or among the five nearest (at_5)."""

    at_1: float
    at_5: float
    words: int


class Entry(NamedTuple):
    """A word, the nearest word of the target, and how near: twice the cosine less the mean nearness of each (CSLS)."""

    word: str
    translation: str
    score: float


@dataclass(frozen=True)
class Found:
    """An alignment and what was measured: translation by each layer's vectors, and by all layers together."""

    alignment: Alignment
    translations: dict[str, Translation]  # by layer, "all", and "common" where the common space is the better one
    lexicon: Callable[[], list[Entry]] = field(repr=False, compare=False)  # each source word's translation
    listed: dict[str, Translation] = field(default_factory=dict)  # the same of a list of pairs that was given for it
    best: str = "all"  # the one of them by which the lexicon goes


def read_word_list(path: str | Path) -> list[Pair]:
    """Pairs of words, two on a line, with a tab or spaces between; a word may have several translations."""
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            words = line.strip().split("\t") if "\t" in line.strip() else line.split()
            if len(words) != 2 or not all(word.strip() for word in words):
                raise FormatError(f"{path}, line {number}: {line[:40]!r}, expected two words with a tab between")
            pairs.append((words[0].strip(), words[1].strip()))
    if not pairs:
        raise FormatError(f"{path}: holds no pairs of words")
    return pairs


def identical_words(source: Anchors, target: Anchors) -> list[Pair]:
    """The words and numbers that both have, as they are spelled; the source's most frequent first."""
    return [(word, word) for word in source.words if word in target.places]


def align_anchors(
    source: Anchors,
    target: Anchors,
    pairs: Sequence[Pair] | None = None,
    *,
    test_pairs: Sequence[Pair] = (),
    config: AlignConfig | None = None,
) -> Found:
    """Maps from `source` into `target`. `pairs` is the seed; without it, identical strings are.

    `test_pairs` are translations to test the maps on, besides the part of the seed that is held out. Their words of the
    source are left out of the seed.
    """
    config = config or AlignConfig()
    outside = {a for a, _ in test_pairs}
    if source.depth != target.depth:
        raise InputError(
            f"{source.source} has {source.depth} layers, {target.source} {target.depth}; a map goes from layer to "
            "layer, so both need as many"
        )
    given = identical_words(source, target) if pairs is None else list(pairs)
    known = _known(given, source, target)
    tested, seed = _held_out([pair for pair in known if pair[0] not in outside], config.test)
    if len(seed) < LEAST:
        raise InputError(
            f"{len(seed)} pairs of the seed ({len(given)} given) have anchors in both models; {LEAST} are needed: give "
            "more text or a longer word list"
        )
    x, y = _unit(source.vectors), _unit(target.vectors)  # (V, L, D), (W, L, E)
    places = _places(seed, source, target)
    checked = places[::CHECKED] if len(places) >= 5 * CHECKED else places[:0]
    fitted = np.delete(places, np.s_[::CHECKED], axis=0) if len(checked) else places
    maps, rounds = _procrustes(x, y, fitted), 0
    score, mutual = _pair_score(x, y, maps, checked, config)
    for _ in range(config.rounds):
        if len(mutual) < LEAST:
            break
        refined = _procrustes(x, y, mutual)
        later, found = _pair_score(x, y, refined, checked, config)
        if later <= score + 1e-4:
            break
        maps, fitted, rounds, score, mutual = refined, mutual, rounds + 1, later, found
    views = _views(x, y, maps, source.layer_names)
    best = "all"
    if len(checked) >= 5:
        first, second = map(_flat, common_space(x, y, fitted))
        every = views | {"common": (first, second)}
        hits = {name: _hits(*view, checked, config) for name, view in every.items()}
        views = every if hits["common"] > hits["all"] else views
        best = max(views, key=lambda name: (hits[name], name == "all"))
    searched = {name: (mapped, keys[: config.search_words]) for name, (mapped, keys) in views.items()}

    @cache
    def crowd(name: str) -> Vectors:
        return _crowd(*searched[name], config.neighbours)

    def measured(some: Sequence[Pair]) -> dict[str, Translation]:
        right = _right_answers(some, source, target, config)
        return {name: _precision(*view, crowd(name), right) for name, view in searched.items() if right}

    translations, listed = measured(tested), measured(_known(test_pairs, source, target))
    scores = {f"{name} at {k}": getattr(t, f"at_{k}") for name, t in translations.items() for k in (1, 5)}
    about = AlignedModels(
        source.model,
        target.model,
        source.source,
        target.source,
        target.layer_names,
        "identical" if pairs is None else "words",
        len(seed),
        len(fitted),
        rounds,
        scores,
    )
    means, others = source.vectors.mean(axis=0), target.vectors.mean(axis=0)  # (L, D), (L, E)
    long, wide = (np.linalg.norm(a.vectors - m, axis=2).mean(axis=0) for a, m in ((source, means), (target, others)))
    scales = np.divide(wide, long, out=np.ones_like(long), where=long > 0)  # (L,)
    alignment = Alignment(maps, means, others, scales.astype(np.float32), about)
    return Found(
        alignment,
        translations,
        lambda: _lexicon(*searched[best], crowd(best), source.words, target.words, config.neighbours),
        listed,
        best,
    )


def csls(queries: Vectors, keys: Vectors, *, neighbours: int) -> Vectors:
    """CSLS of unit vectors (n, D) and (m, D): twice the cosine, less the mean cosine of each to its nearest. (n, m)"""
    cosines = queries @ keys.T
    return 2 * cosines - _nearest_mean(cosines, neighbours)[:, None] - _nearest_mean(cosines.T, neighbours)[None]


def _nearest_mean(cosines: Vectors, neighbours: int) -> Vectors:
    """The mean of the largest few of each row. (n,)"""
    k = min(neighbours, cosines.shape[1])
    largest = -np.partition(-cosines, k - 1, axis=1)[:, :k]
    mean: Vectors = largest.mean(axis=1)
    return mean


def _known(pairs: Sequence[Pair], source: Anchors, target: Anchors) -> list[Pair]:
    """Those with anchors on both sides, each once."""
    return [(a, b) for a, b in dict.fromkeys(pairs) if a in source.places and b in target.places]


def _held_out(pairs: list[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs for the test, evenly spaced, and the others; a word of the test has all its pairs there."""
    words = list(dict.fromkeys(a for a, _ in pairs))
    every = round(1 / share) if share else 0
    tested = set(words[every // 2 :: every]) if every else set()
    return [p for p in pairs if p[0] in tested], [p for p in pairs if p[0] not in tested]


def _places(pairs: Sequence[Pair], source: Anchors, target: Anchors) -> NDArray[np.int64]:
    """(n, 2)"""
    return np.array([(source.places[a], target.places[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)


def _unit(vectors: Vectors) -> Vectors:
    """Centred layer by layer, of length 1. (V, L, D)"""
    return unit_rows(vectors - vectors.mean(axis=0), least=1e-6)


def _procrustes(x: Vectors, y: Vectors, places: NDArray[np.int64]) -> Vectors:
    """For each layer the orthogonal map (D, E) that brings rows of x nearest to rows of y. (L, D, E)"""
    maps = []
    for layer in range(x.shape[1]):
        a, b = x[places[:, 0], layer], y[places[:, 1], layer]
        left, _, right = np.linalg.svd(a.T.astype(float) @ b, full_matrices=False)
        maps.append(left @ right)
    return np.stack(maps).astype(np.float32)


def _mapped(x: Vectors, maps: Vectors) -> Vectors:
    """All layers side by side, mapped, so that a product is the mean cosine over the layers. (n, L * E)"""
    return _flat(np.einsum("nld,lde->nle", x, maps, optimize=True))


def _flat(vectors: Vectors) -> Vectors:
    unit: Vectors = unit_rows(vectors, least=1e-6) / np.sqrt(vectors.shape[1])
    return unit.reshape(len(vectors), -1)


def _pair_score(
    x: Vectors, y: Vectors, maps: Vectors, checked: NDArray[np.int64], config: AlignConfig
) -> tuple[float, NDArray[np.int64]]:
    """The mean CSLS of the checked pairs (n, 2), or of each word's nearest where there are none; and the pairs (m, 2)
    of the most frequent words that are each other's nearest.
    """
    mapped, keys = _mapped(x[: config.refine_words], maps), _flat(y[: config.refine_words])
    scores = csls(mapped, keys, neighbours=config.neighbours)  # (n, m)
    there, back = scores.argmax(axis=1), scores.argmax(axis=0)
    rows = np.flatnonzero(back[there] == np.arange(len(there)))
    inside = checked[(checked < min(scores.shape)).all(axis=1)]
    score = scores[inside[:, 0], inside[:, 1]] if len(inside) >= 5 else scores.max(axis=1)
    return float(score.mean()), np.stack([rows, there[rows]], axis=1)


def _right_answers(pairs: Sequence[Pair], source: Anchors, target: Anchors, config: AlignConfig) -> dict[int, set[int]]:
    """Rows of the target that translate each row of the source."""
    right: dict[int, set[int]] = {}
    for a, b in _places(pairs, source, target).tolist():
        if b < config.search_words:
            right.setdefault(a, set()).add(b)
    return right


def _views(x: Vectors, y: Vectors, maps: Vectors, names: Sequence[str]) -> dict[str, tuple[Vectors, Vectors]]:
    """Mapped source words and target words: of each layer, and of all of them."""
    parts = {name: slice(k, k + 1) for k, name in enumerate(names)} | {"all": slice(None)}
    return {name: (_mapped(x[:, part], maps[part]), _flat(y[:, part])) for name, part in parts.items()}


def _hits(mapped: Vectors, keys: Vectors, pairs: NDArray[np.int64], config: AlignConfig) -> float:
    """The share of pairs (n, 2) whose second is the nearest to the first, among the most frequent words."""
    scores = csls(mapped[: config.refine_words], keys[: config.refine_words], neighbours=config.neighbours)
    inside = pairs[(pairs < min(scores.shape)).all(axis=1)]
    return float((scores[inside[:, 0]].argmax(axis=1) == inside[:, 1]).mean()) if len(inside) else 0.0


def _crowd(mapped: Vectors, keys: Vectors, neighbours: int) -> Vectors:
    """How near each row of keys is to its nearest rows of the other. (m,)"""
    parts = [_nearest_mean(keys[at : at + BLOCK] @ mapped.T, neighbours) for at in range(0, len(keys), BLOCK)]
    return np.concatenate(parts)


def _lexicon(
    mapped: Vectors, keys: Vectors, crowd: Vectors, words: Sequence[str], others: Sequence[str], neighbours: int
) -> list[Entry]:
    """The nearest target word of each source word, by CSLS; `crowd` is that of the keys."""
    found = []
    for at in range(0, len(mapped), BLOCK):
        cosines = mapped[at : at + BLOCK] @ keys.T
        scores = 2 * cosines - _nearest_mean(cosines, neighbours)[:, None] - crowd[None]
        best = scores.argmax(axis=1)
        near = scores[np.arange(len(best)), best]
        found += [
            Entry(words[at + k], others[int(row)], float(score))
            for k, (row, score) in enumerate(zip(best, near, strict=True))
        ]
    return found


def _precision(mapped: Vectors, keys: Vectors, crowd: Vectors, right: dict[int, set[int]]) -> Translation:
    """How often a right answer is among the first, by CSLS over all words of both sides."""
    rows = np.array(list(right))
    hits_1 = hits_5 = 0
    for at in range(0, len(rows), BLOCK):
        some = rows[at : at + BLOCK]
        scores = 2 * (mapped[some] @ keys.T) - crowd[None]  # the query's own crowd does not change the order
        best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
        for row, found in zip(some.tolist(), best.tolist(), strict=True):
            hits_1 += found[0] in right[row]
            hits_5 += bool(right[row] & set(found))
    return Translation(hits_1 / len(rows), hits_5 / len(rows), len(rows))
