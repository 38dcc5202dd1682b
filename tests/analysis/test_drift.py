"""Drift: the measures are what they say, and a planted change is found."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.analysis.drift import (
    DriftConfig,
    chance_of,
    distance_of_means,
    mean_distance,
    measure_drift,
    share_divergence,
)
from elmokit.analysis.kmeans import group_directions
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.index import Index, IndexSettings


def directions(n: int, about: list[float], *, spread: float, seed: int) -> np.ndarray:
    made = np.array(about) + spread * np.random.default_rng(seed).normal(size=(n, len(about)))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


class TestMeasures:
    def test_mean_distance_is_over_all_pairs(self) -> None:
        a, b = directions(7, [1, 0, 0], spread=0.5, seed=0), directions(5, [0, 1, 0], spread=0.5, seed=1)
        pairs = [1 - float(x @ y) for x in a for y in b]
        assert mean_distance(a, b) == pytest.approx(np.mean(pairs), abs=1e-6)

    def test_distance_of_means(self) -> None:
        a = np.array([[1, 0], [0, 1]], dtype=np.float32)
        b = np.array([[0, 1]], dtype=np.float32)
        assert distance_of_means(a, b) == pytest.approx(1 - np.sqrt(0.5))
        assert distance_of_means(a, a[::-1]) == pytest.approx(0, abs=1e-6)

    def test_divergence_of_shares(self) -> None:
        assert share_divergence(np.array([0, 0]), np.array([1, 1, 1])) == pytest.approx(1)
        assert share_divergence(np.array([0, 1]), np.array([1, 0, 0, 1])) == pytest.approx(0)
        # half and half against all of one: entropy of (3/4, 1/4) less the mean of 1 and 0 bits
        entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
        assert share_divergence(np.array([0, 1]), np.array([0])) == pytest.approx(entropy - 0.5)

    @given(st.lists(st.integers(0, 4), min_size=1), st.lists(st.integers(0, 4), min_size=1))
    def test_divergence_is_symmetric_and_bounded(self, first: list[int], second: list[int]) -> None:
        there, back = (
            share_divergence(np.array(first), np.array(second)),
            share_divergence(np.array(second), np.array(first)),
        )
        assert there == pytest.approx(back, abs=1e-12)
        assert -1e-12 <= there <= 1 + 1e-12

    def test_chance_tells_a_change_from_noise(self) -> None:
        a, b = (directions(30, [1, 0, 0, 0], spread=0.6, seed=seed) for seed in (0, 1))
        c = directions(30, [1, 1, 0, 0], spread=0.6, seed=2)
        assert chance_of(a, b, shuffles=200, seed=0) > 0.05
        assert chance_of(a, c, shuffles=200, seed=0) == pytest.approx(1 / 201)


class TestGroups:
    def test_groups_that_are_there_are_found(self) -> None:
        parts = [
            directions(n, about, spread=0.05, seed=n)
            for n, about in ((30, [1, 0, 0]), (20, [0, 1, 0]), (10, [0, 0, 1]))
        ]
        groups = group_directions(np.concatenate(parts), 3)
        assert groups.labels.tolist() == [0] * 30 + [1] * 20 + [2] * 10, "the largest first"
        np.testing.assert_allclose(groups.centres, np.eye(3), atol=0.1)

    def test_never_more_groups_than_vectors_that_differ(self) -> None:
        same = np.tile(directions(1, [1, 2, 3], spread=0, seed=0), (6, 1))
        assert len(group_directions(same, 4).centres) == 1
        assert len(group_directions(same[:1], 4).centres) == 1
        assert not group_directions(same, 1).labels.any()


COMMON = ["walk", "tree", "house", "river", "stone"]


def corpus(seed: int, *, changed: bool) -> list[list[str]]:
    """Every word has contexts of its own; those of "cell" are monks in one period and phones in the other."""
    rng = np.random.default_rng(seed)
    around = {word: [f"{word}{k}" for k in range(6)] for word in [*COMMON, "cell"]}
    around["cell"] = [f"phone{k}" for k in range(6)] if changed else [f"monk{k}" for k in range(6)]
    lines = []
    for word, near in around.items():
        for _ in range(30):
            left, right = rng.choice(near, 3).tolist(), rng.choice(near, 3).tolist()
            lines.append([*left, word, *right])
    return [lines[k] for k in rng.permutation(len(lines))]


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.fixture(scope="module")
def pair(elmo: Elmo, tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Index]:
    folder = tmp_path_factory.mktemp("drift")
    first = Index.build(elmo, corpus(0, changed=False), folder / "first")
    return first, Index.build(elmo, corpus(1, changed=True), folder / "second")


class TestDrift:
    @pytest.mark.parametrize("by", ["apd", "prt", "jsd"])
    def test_the_planted_change_is_first(self, pair: tuple[Index, Index], by: str) -> None:
        found = measure_drift(*pair, words=[*COMMON, "cell"], config=DriftConfig(by=by))  # type: ignore[arg-type]
        assert len(found) == 6
        values = [getattr(drift, by) for drift in found]
        assert values == sorted(values, reverse=True)
        if by != "apd":  # which is large for words of many contexts too, changed or not
            assert found[0].word == "cell"
        by_word = {drift.word: drift for drift in found}
        assert by_word["cell"].p < 0.01
        assert sum(by_word[word].p < 0.01 for word in COMMON) <= 1

    def test_examples_are_of_their_corpus_and_differ(self, pair: tuple[Index, Index]) -> None:
        (cell,) = measure_drift(*pair, words=["cell"], config=DriftConfig(examples=3))
        assert (cell.first, cell.second) == (30, 30)
        assert [o.text.count("monk") for o in cell.first_examples] == [6, 6, 6]
        assert [o.text.count("phone") for o in cell.second_examples] == [6, 6, 6]
        assert len({o.text for o in cell.first_examples}) == 3

    def test_all_frequent_words_unless_told(self, pair: tuple[Index, Index]) -> None:
        found = measure_drift(*pair, config=DriftConfig(min_count=25, shuffles=10))
        counts = [Counter(dict(index.words)) for index in pair]
        assert {drift.word for drift in found} == {
            word for word in counts[0] if min(counts[0][word], counts[1][word]) >= 25
        }
        assert "monk1" not in {drift.word for drift in found}

    def test_words_that_are_not_there(self, pair: tuple[Index, Index]) -> None:
        with pytest.raises(InputError, match=r"'monk1' is not in .*second"):
            measure_drift(*pair, words=["monk1"])
        assert measure_drift(*pair, words=["cell"], config=DriftConfig(min_count=31)) == []

    def test_at_most_so_many_are_looked_at(self, pair: tuple[Index, Index]) -> None:
        (some,) = measure_drift(*pair, words=["cell"], config=DriftConfig(per_word=12))
        assert some.first == 30
        assert some.p < 0.05

    def test_other_layers_or_models_are_refused(self, pair: tuple[Index, Index], elmo: Elmo, tmp_path: Path) -> None:
        lower = Index.build(elmo, corpus(0, changed=False), tmp_path / "a", settings=IndexSettings(layers="0"))
        with pytest.raises(InputError, match=r"holds layers 'top', .* '0'"):
            measure_drift(pair[0], lower)
        other = Elmo(models.tiny(seed=1).pretrained, device="cpu")
        with pytest.raises(InputError, match="another model each"):
            measure_drift(pair[0], Index.build(other, [["a"]], tmp_path / "b"))
        with pytest.raises(InputError, match="cannot rank by 'abc'"):
            DriftConfig(by="abc")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="no fewer looked at"):
            DriftConfig(min_count=10, per_word=5)
