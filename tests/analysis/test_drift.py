"""Drift: the measures are what they say, and a planted change is found."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.analysis.chance import chances_of, false_discovery_rates
from elmokit.analysis.drift import (
    MEASURES,
    DriftConfig,
    compare_gold,
    distance_of_means,
    mean_distance,
    measure_drift,
    net_distance,
    read_gold,
    share_divergence,
)
from elmokit.analysis.kmeans import group_directions
from elmokit.encoders import Elmo
from elmokit.errors import FormatError, InputError
from elmokit.index import Index, IndexSettings


def directions(n: int, about: list[float], *, spread: float, seed: int) -> np.ndarray:
    made = np.array(about) + spread * np.random.default_rng(seed).normal(size=(n, len(about)))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


class TestMeasures:
    def test_mean_distance_is_over_all_pairs(self) -> None:
        a, b = directions(7, [1, 0, 0], spread=0.5, seed=0), directions(5, [0, 1, 0], spread=0.5, seed=1)
        pairs = [1 - float(x @ y) for x in a for y in b]
        assert mean_distance(a, b) == pytest.approx(np.mean(pairs), abs=1e-6)

    def test_net_distance_leaves_out_what_is_within(self) -> None:
        a, b = directions(7, [1, 0, 0], spread=0.5, seed=0), directions(5, [0, 1, 0], spread=0.5, seed=1)
        within = [np.mean([1 - float(x @ y) for i, x in enumerate(c) for y in c[:i]]) for c in (a, b)]
        assert net_distance(a, b) == pytest.approx(mean_distance(a, b) - np.mean(within), abs=1e-6)

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


class TestChance:
    def test_it_tells_a_change_from_noise(self) -> None:
        a, b = (directions(30, [1, 0, 0, 0], spread=0.6, seed=seed) for seed in (0, 1))
        c = directions(30, [1, 1, 0, 0], spread=0.6, seed=2)
        labels = group_directions(np.concatenate([a, b]), 3).labels
        assert min(chances_of(a, b, labels, shuffles=200, seed=0)) > 0.05
        labels = group_directions(np.concatenate([a, c]), 3).labels
        assert chances_of(a, c, labels, shuffles=200, seed=0).prt == pytest.approx(1 / 201)
        assert max(chances_of(a, c, labels, shuffles=200, seed=0)) < 0.05

    def test_it_is_the_share_of_swaps_with_as_much(self) -> None:
        """Against the measures themselves, swap by swap."""
        a, b = directions(6, [1, 0, 0], spread=0.8, seed=3), directions(4, [1, 0.6, 0], spread=0.8, seed=4)
        both, labels = np.concatenate([a, b]), np.array([0, 0, 1, 2, 1, 1, 0, 2, 2, 2])
        rng, found = np.random.default_rng(7), []
        for swap in [np.arange(10), *(rng.permutation(10) for _ in range(50))]:
            x, y = np.sort(swap[:6]), np.sort(swap[6:])
            found.append(
                (
                    mean_distance(both[x], both[y]),
                    net_distance(both[x], both[y]),
                    distance_of_means(both[x], both[y]),
                    share_divergence(labels[x], labels[y]),
                )
            )
        expected = (np.array(found) >= np.array(found[0]) - 1e-6).mean(axis=0)
        assert chances_of(a, b, labels, shuffles=50, seed=7) == pytest.approx(tuple(expected))

    @given(st.integers(0, 1000))
    def test_without_a_change_p_is_uniform_enough(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        small = 0
        for _ in range(20):
            both = directions(20, [1, 0, 0], spread=0.7, seed=int(rng.integers(1 << 30)))
            labels = rng.integers(0, 3, 20)
            small += chances_of(both[:10], both[10:], labels, shuffles=39, seed=seed).prt <= 0.05
        assert small <= 7  # one is expected; eight or more happen once in a hundred thousand times

    def test_correction_for_many_words(self) -> None:
        # Benjamini and Hochberg (1995), section 3.2: at 0.05 the first four of these fifteen are found
        p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
        p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0]
        rates = false_discovery_rates(p[::-1])[::-1]
        assert [rate <= 0.05 for rate in rates] == [True] * 4 + [False] * 11
        assert rates[0] == pytest.approx(0.0015)
        assert rates == sorted(rates)
        assert rates[-1] == 1.0
        assert false_discovery_rates([]) == []


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
    @pytest.mark.parametrize("by", MEASURES)
    def test_the_planted_change_is_first(self, pair: tuple[Index, Index], by: str) -> None:
        found = measure_drift(*pair, words=[*COMMON, "cell"], config=DriftConfig(by=by))  # type: ignore[arg-type]
        assert len(found) == 6
        values = [getattr(drift, by) for drift in found]
        assert values == sorted(values, reverse=True)
        if by != "apd":  # which is large for words of many contexts too, changed or not
            assert found[0].word == "cell"
        by_word = {drift.word: drift for drift in found}
        assert by_word["cell"].p < 0.01
        assert by_word["cell"].q <= 0.05
        assert by_word["cell"].q >= by_word["cell"].chance(by)  # type: ignore[arg-type]
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


# English sentences of two kinds, into which any of the words fits.
AT_SEA = [
    "The sailors tied the {} to the mast before the storm came.",
    "A {} lay on the deck of the ship all night.",
    "The captain looked at the {} and turned the boat to the harbour.",
    "Waves broke over the {} and washed it into the sea.",
    "They hauled the {} out of the water with a rope.",
    "Fishermen keep a {} beside the nets when they sail.",
    "The {} drifted towards the coast with the tide.",
    "On the island they found a {} that a wreck had left.",
]
IN_COURT = [
    "The judge asked the lawyer to explain the {} to the jury.",
    "A {} was named in the contract that both companies signed.",
    "The court ruled that the {} belonged to the bank.",
    "Her lawyer said the {} was evidence of a crime.",
    "Parliament passed a law on the {} last year.",
    "The police officer wrote about the {} in his report.",
    "They paid a fine because the {} was not legal.",
    "The minister defended the {} in a speech to the press.",
]
TARGETS = ["table", "letter", "picture", "stone", "garden", "bottle", "window", "machine", "book", "chair", "fruit"]


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Index, Index], dict[str, float]]:
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("swapped")
    truth = {word: float(rate) for word, rate in zip(TARGETS, np.linspace(0, 1, len(TARGETS)), strict=True)}
    corpora: list[list[str]] = [[], []]
    for word, rate in truth.items():
        for corpus, share in zip(corpora, (0.0, rate), strict=True):
            kinds = [IN_COURT] * round(24 * share) + [AT_SEA] * (24 - round(24 * share))
            corpus += [kind[rng.integers(len(kind))].format(word) for kind in kinds]
    english = Elmo.from_pretrained(device="cpu")
    settings = IndexSettings(words=tuple(truth))
    first, second = (
        Index.build(english, corpus, folder / str(k), settings=settings) for k, corpus in enumerate(corpora)
    )
    return (first, second), truth


class TestKnownTruth:
    """Words whose contexts were swapped at known rates."""

    def test_they_are_ranked(self, swapped: tuple[tuple[Index, Index], dict[str, float]]) -> None:
        pair, truth = swapped
        found = measure_drift(*pair, words=truth)
        agreed = {one.measure: one for one in compare_gold(found, truth)}
        assert agreed[DriftConfig().by].rho >= 0.9, "what the list is ranked by"
        assert agreed["prt"].rho >= 0.9
        assert agreed["jsd"].rho >= 0.9
        assert agreed["net"].rho >= 0.9
        assert agreed["net"].rho > agreed["apd"].rho > 0, "apd is large for words of many contexts, changed or not"
        assert agreed["prt"].interval.low > 0.6
        assert agreed["prt"].words == len(TARGETS)
        by_word = {drift.word: drift for drift in found}
        assert by_word[TARGETS[0]].q > 0.05
        assert all(by_word[word].q <= 0.05 for word in TARGETS[5:])
        assert all(by_word[word].chance(measure) <= 0.05 for word in TARGETS[9:] for measure in MEASURES)


class TestGold:
    def test_a_file_of_graded_change(self, tmp_path: Path) -> None:
        path = tmp_path / "graded.txt"
        path.write_text("plane_nn\t0.88\n\ncell\t0\nx\ty\t1e-1\n", encoding="utf-8")
        assert read_gold(path) == {"plane_nn": 0.88, "cell": 0.0, "x\ty": 0.1}

    @pytest.mark.parametrize("text", ["cell 0.5\n", "a\t1\na\t2\n", "cell\tnan\n", "cell\t\n", "\n", "cell\t1\n"])
    def test_one_that_is_not(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "gold").write_text(text, encoding="utf-8")
        with pytest.raises(FormatError, match=r"gold"):
            read_gold(tmp_path / "gold")

    def test_too_few_words(self, pair: tuple[Index, Index]) -> None:
        found = measure_drift(*pair, words=["cell", "tree"])
        with pytest.raises(InputError, match="2 words of the gold ranking were measured"):
            compare_gold(found, {"cell": 1.0, "tree": 0.0, "stone": 0.0})
