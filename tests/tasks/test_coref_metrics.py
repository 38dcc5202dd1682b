"""Coreference scores equal the reference scorer's own test cases, hand-worked cases and brute force."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.tasks.coref.scores import CorefScores, Ratios, assign, score_clusters, score_document

KEY = "a bc def"  # the key of the reference scorer's cases A; a letter is a mention, a word a cluster


def clusters(text: str) -> list[str]:
    return text.split()


def scored(key: str, response: str) -> CorefScores:
    return score_document(clusters(key), clusters(response))


def three(ratios: Ratios) -> tuple[float, float, float]:
    return ratios.recall, ratios.precision, ratios.f1


# Recall and precision of MUC, B-cubed and CEAF; where the scorer's cases leave one open it is worked out by hand.
CASES = {
    "A1 perfect": (KEY, "a bc def", (1, 1), (1, 1), (1, 1)),
    "A2 missing mentions": (KEY, "a de", (1 / 3, 1), (7 / 3 / 6, 1), (0.6, 0.9)),
    "A3 extra mentions": (KEY, "a bcx defy z", (1, 3 / 5), (1, (4 + 7 / 12) / 9), (0.88571, 0.66429)),
    "A4 both": (KEY, "a bcx dy z", (1 / 3, 1 / 3), (10 / 18, (1 + 4 / 3 + 1 / 2) / 7), (0.73333, 0.55)),
    "A5 overlapping in its cluster": (KEY, "a bcxB dy z", (1 / 3, 1 / 4), (10 / 18, 2.5 / 8), (0.68889, 0.51667)),
    "A6 overlapping elsewhere": (
        *(KEY, "a bcx dy Bz", (1 / 3, 1 / 4)),
        *((10 / 18, (1 + 4 / 3 + 1 / 2) / 8), (0.73333, 0.55)),
    ),
    "A7 repeated in its cluster": (
        *(KEY, "a bcxb dy z", (1 / 3, 1 / 3)),
        *((10 / 18, (1 + 4 / 3 + 1 / 2) / 7), (0.73333, 0.55)),
    ),
    "A8 repeated elsewhere": (
        *(KEY, "a bcx dy bz", (1 / 3, 1 / 3)),
        *((10 / 18, (1 + 4 / 3 + 1 / 2) / 7), (0.73333, 0.55)),
    ),
    "A9 repeated ten times": (
        *(KEY, "a bcx dy bbbbbbbbbbz", (1 / 3, 1 / 3)),
        *((10 / 18, (1 + 4 / 3 + 1 / 2) / 7), (0.73333, 0.55)),
    ),
    "A10 all single": (KEY, "a b c d e f", (0, 0), (1 / 2, 1), ((1 + 2 / 3 + 1 / 2) / 3, (1 + 2 / 3 + 1 / 2) / 6)),
    "A11 all in one": (KEY, "abcdef", (1, 3 / 5), (1, (1 / 6 + 4 / 6 + 9 / 6) / 6), (2 / 9, 2 / 3)),
    "A12 single, some wrong": (
        *(KEY, "a b d e x y z", (0, 0)),
        *(((1 + 1 / 2 + 2 / 3) / 6, 4 / 7), ((1 + 2 / 3 + 1 / 2) / 3, (1 + 2 / 3 + 1 / 2) / 7)),
    ),
    "A13 one, some wrong": (
        *(KEY, "abdexyz", (1 / 3, 1 / 6)),
        *(((1 + 1 / 2 + 4 / 3) / 6, (1 / 7 + 1 / 7 + 4 / 7) / 7), (0.4 / 3, 0.4)),
    ),
    "D1 two merged": ("12345 67 89ABC", "12345 6789ABC", (1, 9 / 10), (1, 16 / 21), ((1 + 10 / 12) / 3, 11 / 12)),
    "E1 large ones merged": (
        *("12345 67 89ABC", "1234589ABC 67", (1, 9 / 10)),
        *((1, 7 / 12), ((1 + 10 / 15) / 3, (1 + 10 / 15) / 2)),
    ),
    "F1 split": ("abcd", "ab cd", (2 / 3, 1), (1 / 2, 1), (2 / 3, 1 / 3)),
    "G1 merged": ("ab cd", "abcd", (1, 2 / 3), (1, 1 / 2), (1 / 3, 2 / 3)),
    "J1 one missing": ("abc", "ab", (1 / 2, 1), (4 / 9, 1), (4 / 5, 4 / 5)),
    "K1 scattered": ("BCDEGHJ", "ABC DEF GHI", (3 / 6, 3 / 6), (12 / 49, 12 / 27), (0.4, 0.4 / 3)),
    "L1 across": ("ABC DEFG", "AB CD FGH", (2 / 5, 2 / 4), ((5 / 3 + 5 / 4) / 7, 13 / 3 / 7), (48 / 70, 32 / 70)),
    "M1": ("abcdef", "abcdef", (1, 1), (1, 1), (1, 1)),
    "M2 all single": ("abcdef", "a b c d e f", (0, 0), (1 / 6, 1), (2 / 7, 2 / 42)),
    "M5 nothing in common": ("abcdef", "ghijkl", (0, 0), (0, 0), (0, 0)),
    "N1 key of single mentions": ("a b c d e f", "a b c d e f", (0, 0), (1, 1), (1, 1)),
    "N2 merged": ("a b c d e f", "abcdef", (0, 0), (1, 1 / 6), (2 / 42, 2 / 7)),
    "N4 half twinless": ("a b c d e f", "a b c x y z", (0, 0), (1 / 2, 1 / 2), (1 / 2, 1 / 2)),
    "empty response": (KEY, "", (0, 0), (0, 0), (0, 0)),
    "empty key": ("", "ab c", (0, 0), (0, 0), (0, 0)),
    "both empty": ("", "", (0, 0), (0, 0), (0, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_cases_of_the_reference_scorer(case: str) -> None:
    key, response, *expected = CASES[case]
    found = scored(key, response)
    for ratios, (recall, precision) in zip((found.muc, found.b_cubed, found.ceaf), expected, strict=True):
        assert ratios.recall == pytest.approx(recall, abs=1e-5)
        assert ratios.precision == pytest.approx(precision, abs=1e-5)
        both = recall + precision
        assert ratios.f1 == pytest.approx(2 * recall * precision / both if both else 0, abs=1e-5)


def test_a_repeated_mention_that_is_not_in_the_key_stays() -> None:
    # The reference scorer looks for repeats among mentions of the key alone.
    assert scored("ab", "ab xx").b_cubed.predicted == 4
    assert scored("ab", "ab xx").muc.predicted == 2
    assert scored("ab", "abb").b_cubed.predicted == 2


def test_of_a_mention_in_two_true_clusters_the_last_counts() -> None:
    found = scored("ab ac", "ac")
    assert found.muc == Ratios(1, 2, 1, 1)
    assert found.b_cubed == Ratios(2, 4, 2, 2)
    assert found.ceaf.found == pytest.approx(1)


def test_sums_are_over_documents() -> None:
    one, two = (clusters("ab"), clusters("ab")), (clusters("cd ef"), clusters("cx"))
    both = score_clusters([one, two])
    assert both.muc == Ratios(1, 3, 1, 2)
    assert both.b_cubed == Ratios(2.5, 6, 2.5, 4)
    assert three(both.ceaf) == pytest.approx((1.5 / 3, 1.5 / 2, 0.6))
    assert both.mentions == Ratios(3, 6, 3, 4)
    assert both.average == pytest.approx((both.muc.f1 + both.b_cubed.f1 + both.ceaf.f1) / 3)
    assert score_clusters([]).average == 0


def test_mentions_are_compared_by_both_ends() -> None:
    assert score_document([[(0, 2), (5, 6)]], [[(0, 2), (5, 7)]]).mentions == Ratios(1, 2, 1, 2)


@given(st.integers(1, 5), st.integers(0, 2), st.integers(0, 2**32))
def test_assignment_is_the_best_there_is(rows: int, more: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 4, (rows, rows + more)) / 3  # many ties
    picked = assign(values)
    assert len(set(picked.tolist())) == rows
    best = max(sum(values[i, j] for i, j in enumerate(p)) for p in permutations(range(rows + more), rows))
    assert values[np.arange(rows), picked].sum() == pytest.approx(best)


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(0, 3), max_size=8))
def test_swapping_the_sides_swaps_recall_and_precision(first: list[int], second: list[int]) -> None:
    def grouped(labels: list[int]) -> list[list[int]]:
        return [[m for m, label in enumerate(labels) if label == k] for k in range(4)]

    one, two = score_document(grouped(first), grouped(second)), score_document(grouped(second), grouped(first))
    for name in ("muc", "b_cubed", "ceaf", "mentions"):
        a, b = getattr(one, name), getattr(two, name)
        assert three(a) == pytest.approx((b.precision, b.recall, b.f1))
