"""The senses of a word: groups that are there are found, and none where there are none."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_samples

import models
from elmokit.analysis.word_senses import SensesConfig, Use, find_uses, group_senses, group_vectors, silhouettes
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.text import Sentence

SENTENCE = Sentence.of(["a", "Play", "of", "play"])


def some_uses(n: int) -> list[Use]:
    return [Use(Sentence.of([str(k), "play"]), 1) for k in range(n)]


def clouds(*sizes: int, width: int = 30, seed: int = 0) -> np.ndarray:
    """Vectors about a common offset, in groups far apart."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(len(sizes), width)) * 3
    parts = [rng.normal(size=(size, width)) + middle for size, middle in zip(sizes, middles, strict=True)]
    return (np.concatenate(parts) + 20).astype(np.float32)


def test_uses_are_found_whatever_their_case_and_copies_count_once() -> None:
    other = Sentence.of(["no", "players"])
    uses = find_uses([SENTENCE, other, SENTENCE], "PLAY")
    assert [use.position for use in uses] == [1, 3]
    assert (uses[0].left, uses[0].word, uses[0].right) == ("a", "Play", "of play")


@pytest.mark.parametrize("sizes", [(40, 20), (30, 25, 20)])
def test_the_number_of_groups_is_found(sizes: tuple[int, ...]) -> None:
    found = group_vectors(clouds(*sizes), some_uses(sum(sizes)), SensesConfig())
    assert tuple(len(group.uses) for group in found.groups) == sizes  # the largest first
    begin = 0
    for group, size in zip(found.groups, sizes, strict=True):
        assert group.uses == tuple(range(begin, begin + size))
        assert set(group.examples) < set(group.uses)
        assert group.silhouette > 0.4
        begin += size
    assert max(found.silhouettes, key=lambda k: found.silhouettes[k]) == len(sizes)
    assert found.points.shape == (sum(sizes), 2)
    assert 0 < found.explained[1] <= found.explained[0] <= 1


def test_what_hangs_together_is_one_group_unless_more_are_asked_for() -> None:
    vectors, uses = clouds(80), some_uses(80)
    found = group_vectors(vectors, uses, SensesConfig())
    assert [len(group.uses) for group in found.groups] == [80]
    assert found.groups[0].silhouette == 0
    assert len(group_vectors(vectors, uses, SensesConfig(clusters=3)).groups) == 3
    few = group_vectors(vectors[:4], uses[:4], SensesConfig(clusters=9))
    assert (len(few.groups), few.silhouettes) == (4, {4: 0})


def test_examples_are_nearest_to_the_middle() -> None:
    vectors = clouds(20, 20)
    vectors[0] += np.random.default_rng(1).normal(size=30).astype(np.float32) * 4  # off into a direction of its own
    found = group_vectors(vectors, some_uses(40), SensesConfig(clusters=2, examples=19))
    (group,) = [group for group in found.groups if 0 in group.uses]
    assert 0 not in group.examples


def test_silhouettes_equal_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    unit = rng.normal(size=(30, 4))
    unit = (unit / np.linalg.norm(unit, axis=1, keepdims=True)).astype(np.float32)
    labels = rng.integers(0, 3, 30)
    labels[7] = 3  # a group of one
    np.testing.assert_allclose(silhouettes(unit, labels), silhouette_samples(unit, labels, metric="cosine"), atol=1e-5)
    assert silhouettes(unit, np.zeros(30, dtype=np.int64)).tolist() == [0] * 30


def test_with_a_real_encoder() -> None:
    """Two contexts, many times with other names: the uses group by context, which layer 0 cannot see."""
    elmo = Elmo(models.tiny().pretrained, device="cpu")
    texts = [f"{name} went to see the play at night" for name in "ABCDEFGH"]
    texts += [f"let us play ball {name}" for name in "ABCDEFGH"]
    uses = find_uses((Sentence.of(text.split()) for text in texts), "play")
    found = group_senses(elmo, uses, config=SensesConfig(clusters=2))
    assert {group.uses for group in found.groups} == {tuple(range(8)), tuple(range(8, 16))}
    few = group_senses(elmo, uses, config=SensesConfig(clusters=1, uses=4, layers=0))
    assert [use.sentence.tokens[0] for use in few.uses] == ["A", "E", "let", "let"]
    assert np.abs(few.points).max() < 1e-5
    with pytest.raises(InputError, match="occurs 1 times"):
        group_senses(elmo, uses[:1])
    with pytest.raises(InputError, match="0 clusters; expected 1"):
        SensesConfig(clusters=0)
