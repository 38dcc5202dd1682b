"""Sense centroids, worked by hand with vectors that can be read off."""

from collections import Counter

import numpy as np
import pytest

import models
from elmokit.analysis.sense_files import SenseIndex, SenseInstance, SenseSentence
from elmokit.analysis.senses import (
    SenseCentroids,
    count_senses,
    few_per_sense,
    most_frequent_senses,
    score_senses,
    train_centroids,
)
from elmokit.encoders import Elmo
from elmokit.text import Sentence

BANK = ("bank", "n")
MONEY, RIVER = "bank%1:14:00::", "bank%1:17:01::"
INDEX = SenseIndex({RIVER: 1, MONEY: 2, "dog%1:05:00::": 1}, {BANK: RIVER, ("dog", "n"): "dog%1:05:00::"})


def layers(*vectors: list[float]) -> np.ndarray:
    """(L = 2, T, D = 2): layer 0 as given, layer 1 turned by a right angle."""
    first = np.array(vectors, dtype=np.float32)
    return np.stack([first, first[:, ::-1]])


def bank(*keys: str, start: int = 0, end: int = 1) -> SenseInstance:
    return SenseInstance(start, end, BANK, keys)


def test_the_nearest_average_by_cosine_wins_in_each_layer() -> None:
    centroids = SenseCentroids()
    centroids.add(bank(MONEY), layers([9, 0]))
    centroids.add(bank(MONEY), layers([9, 6]))
    centroids.add(bank(RIVER), layers([0, 1]))
    assert centroids.counts == {MONEY: 2, RIVER: 1}
    assert centroids.nearest(bank(), layers([1, 0])) == (MONEY, MONEY)
    assert centroids.nearest(bank(), layers([1, 5])) == (RIVER, RIVER)  # length does not matter
    crossed = np.stack([layers([1, 0])[0], layers([0, 1])[1] * 0 + [1, 0]])  # layer 1 sees a turned river
    assert centroids.nearest(bank(), crossed.astype(np.float32)) == (MONEY, RIVER)


def test_words_of_a_multiword_are_averaged_and_two_senses_both_count() -> None:
    centroids = SenseCentroids()
    centroids.add(bank(MONEY, RIVER, start=1, end=3), layers([100, 100], [2, 0], [0, 4]))
    np.testing.assert_array_equal(centroids.sums[MONEY], [[1, 2], [2, 1]])
    np.testing.assert_array_equal(centroids.sums[RIVER], centroids.sums[MONEY])
    centroids.add(bank(RIVER), layers([0, 1]))
    np.testing.assert_array_equal(centroids.sums[MONEY], [[1, 2], [2, 1]])  # no shared memory


def test_scores_with_a_real_encoder() -> None:
    """Trained on the very sentences asked for, contextual layers are right; layer 0, the same for both, is not."""
    elmo = Elmo(models.tiny().pretrained, device="cpu")

    def tagged(text: str, *keys: str, lemma: tuple[str, str] = BANK) -> SenseSentence:
        tokens = text.split()
        at = tokens.index("bank")
        return SenseSentence(Sentence.of(tokens), (SenseInstance(at, at + 1, lemma, keys),))

    text = [tagged("The money is in the bank .", MONEY), tagged("bank of a river", RIVER), tagged("a bank", MONEY)]
    centroids = train_centroids(elmo, text[:2])
    dog = tagged("The bank barks", "dog%1:05:00::", lemma=("dog", "n"))
    scores = score_senses(elmo, centroids, [*text[:2], dog], INDEX, frequencies=count_senses(text))
    assert (scores.instances, scores.covered, scores.layer_names) == (3, 2, elmo.layer_names)
    assert scores.layers == (0.5, 1.0, 1.0)
    assert scores.layers_all == pytest.approx((2 / 3, 1, 1))
    assert (scores.first_sense, scores.most_frequent) == (0.5, 0.5)
    assert (scores.first_sense_all, scores.most_frequent_all) == pytest.approx((2 / 3, 2 / 3))


def test_most_frequent_sense() -> None:
    senses = {BANK: [MONEY, RIVER]}
    assert most_frequent_senses(Counter({MONEY: 2, RIVER: 1}), senses, INDEX) == {BANK: MONEY}
    assert most_frequent_senses(Counter({MONEY: 2, RIVER: 2}), senses, INDEX) == {BANK: RIVER}  # the first in WordNet


def test_few_per_sense() -> None:
    text = [SenseSentence(Sentence.of("abc"), (bank(key),)) for key in (MONEY, MONEY, MONEY, RIVER, MONEY)]
    text.append(SenseSentence(Sentence.of("abc"), (SenseInstance(0, 1, ("dog", "n"), ("dog%1:05:00::",)),)))
    assert few_per_sense(text, {BANK}, most=2) == [*text[:2], text[3]]
    assert few_per_sense(text, {BANK}, most=9) == text[:5]
