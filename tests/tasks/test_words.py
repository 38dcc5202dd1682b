"""What networks read of words: shapes, padding, mixes of their own, vocabularies, characters once per word."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerStack
from elmokit.tasks.words import (
    PAD,
    UNKNOWN,
    WordFeatures,
    WordFeaturesConfig,
    WordReader,
    WordVocabulary,
    describe_mixes,
)
from elmokit.text import Sentence

SENTENCES = [Sentence.of(s.split()) for s in ("The cat sat", "a", "", "the Cat and The mat")]
VOCABULARY = WordVocabulary.of(SENTENCES)
CONFIG = WordFeaturesConfig(
    n_words=len(VOCABULARY), word_dim=5, char_dim=3, char_filters=((2, 4), (3, 2)), elmo_depth=3, elmo_width=4
)


def layers(lengths: list[int], *, T: int | None = None, seed: int = 0) -> LayerStack:
    """Random layers, the same for a sentence whatever stands beside it."""
    T = (max(lengths) or 1) if T is None else T
    values = torch.zeros(3, len(lengths), T, 4)
    mask = torch.zeros(len(lengths), T, dtype=torch.bool)
    for k, n in enumerate(lengths):
        values[:, k, :n] = torch.randn(3, n, 4, generator=torch.Generator().manual_seed(seed + n))
        mask[k, :n] = True
    return LayerStack(values, mask, ("0", "1", "2"))


def features(config: WordFeaturesConfig) -> WordFeatures:
    torch.manual_seed(0)
    return WordFeatures(config).eval()


@pytest.mark.parametrize(
    ("at", "width", "above"), [("none", 11, 0), ("input", 15, 0), ("output", 11, 4), ("both", 15, 4)]
)
def test_places_of_elmo(at: str, width: int, above: int) -> None:
    config = replace(CONFIG, elmo_at=at)
    made = features(config)
    stack = layers([3, 1, 0, 5]) if at != "none" else None
    words = WordReader(VOCABULARY, config).batch(SENTENCES, stack=stack)
    assert (made.width, made.output_width) == (width, above)
    found, higher = made(words), made.at_output(words)
    assert found.shape == (4, 5, width)
    assert higher.shape == (4, 5, above)
    assert words.lengths.tolist() == [3, 1, 0, 5]
    assert not found[~words.mask].any()
    assert not higher[~words.mask].any()
    assert set(made.mixes) == {"none": set(), "both": {"input", "output"}}.get(at, {at})
    (found.sum() + higher.sum() + made.penalty()).backward()
    for mix in made.mixes.values():
        assert mix.gamma.grad is not None


def test_mixes_are_apart() -> None:
    made = features(replace(CONFIG, elmo_at="both", elmo_l2=0.5))
    with torch.no_grad():
        made.mixes["output"].weights[2] = 2.0
        made.mixes["output"].gamma[:] = 3.0
    assert float(made.penalty().detach()) == pytest.approx(0.5 * 4, rel=1e-5)
    words = WordReader(VOCABULARY, made.config).batch(SENTENCES, stack=layers([3, 1, 0, 5]))
    assert words.stack is not None
    values = words.stack.values
    torch.testing.assert_close(made(words)[..., -4:], values.mean(dim=0))
    shares = torch.softmax(torch.tensor([0.0, 0.0, 2.0]), dim=0)
    torch.testing.assert_close(made.at_output(words), 3 * torch.einsum("l,lbtd->btd", shares, values))
    said = describe_mixes(made.mixes)
    assert said["output"]["gamma"] == 3.0
    assert said["input"]["shares"] == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize(("chosen", "expected"), [("0", 0), ("top", 2), ("average", None)])
def test_fixed_layers_have_no_mix(chosen: str, expected: int | None) -> None:
    made = features(replace(CONFIG, elmo_at="input", elmo_layers=chosen, word_dim=0, char_dim=0))
    assert not list(made.parameters())
    assert not made.mixes
    assert float(made.penalty()) == 0.0
    words = WordReader(VOCABULARY, made.config).batch(SENTENCES, stack=layers([3, 1, 0, 5]))
    assert words.stack is not None
    wanted = words.stack.values.mean(dim=0) if expected is None else words.stack.values[expected]
    torch.testing.assert_close(made(words)[..., -4:], wanted)


def test_some_layers_of_a_mix() -> None:
    made = features(replace(CONFIG, elmo_at="input", elmo_layers="mix:1,2"))
    words = WordReader(VOCABULARY, made.config).batch(SENTENCES, stack=layers([3, 1, 0, 5]))
    assert words.stack is not None
    torch.testing.assert_close(made(words)[..., -4:], words.stack.values[1:].mean(dim=0))


def test_neighbours_and_padding_change_nothing() -> None:
    config = replace(CONFIG, elmo_at="both")
    made, reader = features(config), WordReader(VOCABULARY, config)
    together = made(reader.batch(SENTENCES, stack=layers([3, 1, 0, 5])))
    for k, sentence in enumerate(SENTENCES):
        alone = made(reader.batch([sentence], stack=layers([len(sentence)])))[:, : len(sentence)]
        torch.testing.assert_close(together[k, : len(sentence)], alone[0])


def test_vocabulary_looks_up_as_written_then_in_lower_case() -> None:
    assert VOCABULARY.words == ("the", "cat", "a", "and", "mat", "sat")
    assert [VOCABULARY.id(word) for word in ("the", "The", "CAT", "dog", "")] == [2, 2, 3, UNKNOWN, UNKNOWN]
    cased = WordVocabulary(["Cat", "cat"])
    assert [cased.id(word) for word in ("Cat", "cat", "CAT")] == [2, 3, 3]
    assert WordVocabulary.of(SENTENCES, min_count=2).words == ("the", "cat")
    with pytest.raises(InputError, match="twice"):
        WordVocabulary(["a", "a"])


def test_characters_tell_case_and_stand_once_per_word() -> None:
    words = WordReader(VOCABULARY, CONFIG).batch(SENTENCES)
    assert words.characters is not None
    assert words.places is not None
    assert len(words.characters) == 1 + 8  # The cat sat a the Cat and mat, and padding
    assert words.ids[0, 0] == words.ids[3, 0]
    assert words.places[0, 0] != words.places[3, 0]
    assert words.places[0, 0] == words.places[3, 3]
    assert words.ids[1, 1] == PAD


def test_given_vectors_stay_unless_trained() -> None:
    config = replace(CONFIG, train_words=False)
    made = features(config)
    rows = np.arange(6 * 5, dtype=np.float32).reshape(6, 5)
    made.load_vectors(rows)
    assert made.words is not None
    assert not made.words.weight.requires_grad
    found = made(WordReader(VOCABULARY, config).batch([Sentence.of(["mat", "dog"])]))
    assert found[0, 0, :5].tolist() == rows[4].tolist()
    torch.testing.assert_close(found[0, 1, :5], torch.from_numpy(rows.mean(axis=0)))
    with pytest.raises(InputError, match=r"shape \(2, 5\) given, expected \(6, 5\)"):
        made.load_vectors(rows[:2])


def test_word_dropout_in_training_only() -> None:
    config = replace(CONFIG, word_dropout=1.0, char_dim=0)
    made = features(config)
    words = WordReader(VOCABULARY, config).batch(SENTENCES)
    before = made(words)
    made.train()
    lost = made(words)
    assert made.words is not None
    assert not torch.equal(before, lost)
    torch.testing.assert_close(lost[0, 0], made.words.weight[UNKNOWN])
    assert not lost[~words.mask].any()


def test_impossible_features_are_refused() -> None:
    with pytest.raises(ConfigError, match="no encoder was given"):
        WordFeaturesConfig(elmo_at="input")
    with pytest.raises(ConfigError, match="nothing is read of a word"):
        WordFeaturesConfig(word_dim=0, char_dim=0)
    with pytest.raises(ConfigError, match="keeps the layers apart"):
        replace(CONFIG, elmo_layers="all")
    with pytest.raises(ConfigError, match="expected none, input, output or both"):
        replace(CONFIG, elmo_at="top")  # type: ignore[arg-type]
    made = features(replace(CONFIG, elmo_at="input"))
    with pytest.raises(InputError, match="without layers"):
        made(WordReader(VOCABULARY, CONFIG).batch(SENTENCES))
    with pytest.raises(InputError, match="positions for words"):
        WordReader(VOCABULARY, CONFIG).batch(SENTENCES, stack=layers([3]))
