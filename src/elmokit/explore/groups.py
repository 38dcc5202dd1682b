"""Groups of a cloud's occurrences, and what tells each of them: typical contexts, words around, substitutes."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.analysis.word_senses import SensesConfig, group_vectors
from elmokit.explore.cloud import Cloud, Rows
from elmokit.explore.steps import Progress, Steps
from elmokit.index import ENGLISH_STOP_WORDS
from elmokit.layers import unit_rows
from elmokit.lm import LanguageModel

MOST_GROUPED = 1_500  # occurrences that groups are made from; the others join the nearest
AROUND = 6  # words on each side that count as context
TRIED = 3  # contexts of a group that substitutes are asked for


def group(cloud: Cloud, *, layer: str | None = None, clusters: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Groups of one layer; `clusters` None takes the number with the best silhouette. See `elmokit senses`."""
    vectors, n = cloud.vectors(layer), len(cloud)
    if n < 2:
        return {
            "labels": np.zeros(n, dtype=np.int64),
            "silhouettes": {},
            "groups": [_described(cloud, [0] * n, 0, [0], 0.0)],
        }
    some = np.arange(n) if n <= MOST_GROUPED else np.linspace(0, n - 1, MOST_GROUPED).round().astype(np.int64)
    config = SensesConfig(clusters=clusters, examples=5, seed=seed)
    found = group_vectors(vectors[some], (), config)
    known = np.zeros(len(some), dtype=np.int64)
    for number, one in enumerate(found.groups):
        known[list(one.uses)] = number
    labels = known if n == len(some) else _joined(vectors, some, known, config.dimensions)
    groups = [
        _described(cloud, labels, number, some[list(one.examples)], one.silhouette)
        for number, one in enumerate(found.groups)
    ]
    return {"labels": labels, "silhouettes": found.silhouettes, "groups": groups}


def substitutes(
    cloud: Cloud, lm: LanguageModel, examples: Sequence[Sequence[int]]
) -> Steps[list[list[dict[str, Any]]]]:
    """Words that could stand in the word's place, by group: the mean probability over its typical contexts."""
    found: list[list[dict[str, Any]]] = []
    left_out = {spelling.casefold() for spelling in cloud.spelled} | set(ENGLISH_STOP_WORDS)
    for number, numbers in enumerate(examples):
        yield Progress(number, len(examples), "asking for substitutes", model=True)
        sums: dict[str, float] = {}
        for k in numbers[:TRIED]:
            one = cloud.indexes[cloud.sides[k]].occurrence(int(cloud.rows[k]))
            sentence = lm.tokenizer.tokenize(one.text)
            if one.position >= len(sentence) or sentence.spans[one.position] != (one.start, one.end):
                continue
            said = lm.substitutes(sentence, one.position, n=20)
            for word, probability in said.both or said.forward or said.backward or ():
                if word.casefold() not in left_out and any(map(str.isalpha, word)):
                    sums[word] = sums.get(word, 0.0) + probability
        tried = max(len(numbers[:TRIED]), 1)
        best = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
        found.append([{"word": word, "probability": p / tried} for word, p in best[:6]])
    return found


def similar_to(cloud: Cloud, number: int, *, layer: str | None = None) -> Rows:
    """The cosine of every occurrence with one of them, as directions from the mean of the cloud. (n,)"""
    unit = _directions(cloud.vectors(layer))
    cosines: Rows = unit @ unit[number]
    return cosines


def apart(cloud: Cloud, *, layer: str | None = None) -> Rows:
    """For a cloud of two indexes: 1 minus the cosine with the nearest occurrence of the other one. (n,)"""
    unit = _directions(cloud.vectors(layer))
    first, second = (np.flatnonzero(cloud.sides == side) for side in (0, 1))
    made = np.zeros(len(cloud), dtype=np.float32)
    if len(first) and len(second):
        cosines = unit[first] @ unit[second].T  # (n, m)
        made[first], made[second] = 1 - cosines.max(axis=1), 1 - cosines.max(axis=0)
    return made


def _directions(vectors: Rows) -> Rows:
    """From the mean, of length 1. (n, D)"""
    return unit_rows(vectors - vectors.mean(axis=0))


def _joined(vectors: Rows, some: NDArray[np.int64], known: NDArray[np.int64], dimensions: int) -> NDArray[np.int64]:
    """The group of every vector: of those not grouped, the nearest by direction in the dimensions that vary most."""
    mean = vectors[some].mean(axis=0)
    _, _, axes = np.linalg.svd((vectors[some] - mean).astype(np.float64), full_matrices=False)
    kept = (vectors - mean) @ axes[:dimensions].T.astype(np.float32)  # (n, d)
    unit = unit_rows(kept)
    centres = unit_rows(np.stack([unit[some[known == k]].mean(axis=0) for k in range(known.max() + 1)]))  # (k, d)
    labels: NDArray[np.int64] = (unit @ centres.T).argmax(axis=1)
    labels[some] = known
    return labels


def _described(cloud: Cloud, labels: Any, number: int, examples: Any, silhouette: float) -> dict[str, Any]:
    members = np.flatnonzero(np.asarray(labels) == number)
    return {
        "size": len(members),
        "silhouette": silhouette,
        "examples": [int(k) for k in examples],
        "around": _around(cloud, members),
    }


def _around(cloud: Cloud, members: NDArray[np.int64], *, most: int = 8) -> list[str]:
    """Words that stand near the word in this group more than in the others, by log-likelihood (Dunning 1993)."""
    inside, outside = Counter[str](), Counter[str]()
    own, chosen = {s.casefold() for s in cloud.spelled}, set(members.tolist())
    stop = set(ENGLISH_STOP_WORDS)
    for k, (left, _, right) in enumerate(cloud.lines):
        near = (*left.split()[-AROUND:], *right.split()[:AROUND])
        words = {word.strip(".,;:!?\"'()[]“”‘’—–-").casefold() for word in near}
        words = {
            word
            for word in words
            if len(word) > 1 and word not in stop and word not in own and any(map(str.isalpha, word))
        }
        (inside if k in chosen else outside).update(words)
    ours, theirs = max(len(members), 1), max(len(cloud.lines) - len(members), 0)

    def weight(word: str) -> float:
        a, b = inside[word], outside[word]
        expected = ours * (a + b) / (ours + theirs)
        return a * math.log(a / expected) if a > expected else (0.0 if theirs else float(a))

    ranked = sorted((w for w in inside if inside[w] > 1 or ours < 10), key=lambda w: (-weight(w), w))
    return [word for word in ranked[:most] if weight(word) > 0]
