"""Words in context: correlation and thresholds by hand, cosines from a real encoder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import models
from elmokit.analysis.pair_files import PlacedWord, WordPair
from elmokit.analysis.pairs import fit_threshold, pair_cosines, ranks, spearman, threshold_accuracy
from elmokit.analysis.views import list_views
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.text import Sentence


def test_ranks_and_correlation_by_hand() -> None:
    assert ranks([10, 30, 20, 20]).tolist() == [1, 4, 2.5, 2.5]
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert spearman([1, 1, 1], [1, 2, 3]) == 0
    with pytest.raises(InputError, match="needs two or more"):
        spearman([1], [1])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=30))
def test_correlation_equals_scipys(rows: list[tuple[int, int]]) -> None:
    first, second = (np.array(side, dtype=float) for side in zip(*rows, strict=True))
    if len(set(first)) > 1 and len(set(second)) > 1:
        assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_threshold_by_hand() -> None:
    cosines, same = np.array([0.1, 0.2, 0.6, 0.5, 0.9]), np.array([False, False, False, True, True])
    cut = fit_threshold(cosines, same)
    assert cut == pytest.approx(0.35)  # one pair is wrong there; so it is at 0.75, and the lower one counts
    assert threshold_accuracy(cosines, same, cut) == 0.8
    assert fit_threshold(np.array([0.3, 0.4]), np.array([True, True])) < 0.3
    assert fit_threshold(np.array([0.3, 0.4]), np.array([False, False])) > 0.4
    with pytest.raises(InputError, match="0 cosines for 0 answers"):
        fit_threshold(np.array([]), np.array([], dtype=bool))


@given(st.lists(st.tuples(st.floats(-1, 1), st.booleans()), min_size=1, max_size=20))
def test_no_other_threshold_is_better(rows: list[tuple[float, bool]]) -> None:
    cosines, same = np.array([c for c, _ in rows]), np.array([s for _, s in rows])
    best = threshold_accuracy(cosines, same, fit_threshold(cosines, same))
    tried = [*cosines, *(cosines + 1e-9), -2, 2]
    assert best >= max(threshold_accuracy(cosines, same, cut) for cut in tried) - 1e-12


def test_cosines_of_a_real_encoder() -> None:
    elmo = Elmo(models.tiny().pretrained, device="cpu")
    one, other = Sentence.of(["the", "bank", "of", "the", "river"]), Sentence.of(["my", "bank"])
    same = WordPair(PlacedWord(one, 1, 2), PlacedWord(one, 1, 2), 10)
    apart = WordPair(PlacedWord(one, 1, 2), PlacedWord(other, 1, 2), 5)
    wide = WordPair(PlacedWord(one, 0, 2), PlacedWord(other, 0, 2), 5)
    views = list_views(elmo.layer_names, ["each", "concat:1,2"])
    found = pair_cosines(elmo, [same, apart, wide], views)
    assert found.shape == (4, 3)
    np.testing.assert_allclose(found[:, 0], 1, atol=1e-6)
    assert found[0, 1] == 1  # layer 0 knows no context; exactly, so that no rounding error orders such pairs
    assert (found[1:, 1] < 0.999).all()
    layers = [elmo.encode_layers(s)[:, :2].mean(axis=1)[1] for s in (one, other)]
    cosine = layers[0] @ layers[1] / np.linalg.norm(layers[0]) / np.linalg.norm(layers[1])
    assert found[1, 2] == pytest.approx(cosine, abs=1e-5)
