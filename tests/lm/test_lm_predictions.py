"""Next words, blanks, substitutes and samples against brute force: every prefix and suffix run on its own."""

import math

import numpy as np
import pytest
import torch
from small_lm import WORDS, after, number

from elmokit.errors import InputError
from elmokit.lm import BLANK
from elmokit.lm.predictions import combine, read_context, zipf_unigram
from elmokit.lm.sampling import Drawing
from elmokit.text import load_tokenizer


def test_next_words(lm):
    prefix = ["the", "zebra"]
    candidates = lm.next_words(prefix, n=100)
    expected = after(lm, prefix, "forward").exp()
    allowed = [k for k, word in enumerate(WORDS) if word not in ("<S>", "<UNK>")]
    expected = expected / expected[allowed].sum()
    assert {word for word, _ in candidates} == {WORDS[k] for k in allowed}
    assert sum(p for _, p in candidates) == pytest.approx(1)
    assert [p for _, p in candidates] == sorted((p for _, p in candidates), reverse=True)
    for word, p in candidates:
        assert p == pytest.approx(expected[number(word)].item(), rel=1e-4)
    assert lm.next_words("the zebra", n=2) == candidates[:2]
    assert "<UNK>" in dict(lm.next_words(prefix, n=100, unknown=True))


@pytest.mark.parametrize("suffix", [["river", "."], []])
def test_previous_words(lm, suffix):
    candidates = dict(lm.previous_words(suffix, n=100))
    raw = after(lm, suffix, "backward").exp()
    assert "<S>" in candidates
    assert not {"</S>", "<UNK>"} & candidates.keys()
    rest = 1 - raw[[number("</S>"), number("<UNK>")]].sum().item()
    for word, p in candidates.items():
        assert p == pytest.approx(raw[number(word)].item() / rest, rel=1e-4)


@pytest.mark.parametrize("left", [["on", "the"], []])
@pytest.mark.parametrize("right", [["of", "the", "river", "."], []])
def test_a_blank_is_the_normalised_product(lm, left, right):
    predictions = lm.fill([*left, BLANK, *right], n=100)
    forward, backward = after(lm, left, "forward"), after(lm, right, "backward")
    ranks = torch.tensor([math.log(math.log((k + 2) / (k + 1)) / math.log(13)) for k in range(12)])  # words 3 .. 14
    parts = {
        "forward": forward[3:].exp(),
        "backward": backward[3:].exp(),
        "both": (forward[3:] + backward[3:] - ranks).exp(),
    }
    for name, scores in parts.items():
        found = dict(getattr(predictions, name))
        assert set(found) == set(WORDS[3:])  # neither a boundary nor <UNK> fills a blank
        for k, word in enumerate(WORDS[3:]):
            assert found[word] == pytest.approx((scores[k] / scores.sum()).item(), rel=1e-4)


def test_combining_is_bayes_rule():
    """With left and right independent given the word, the posterior is the product over the unigram."""
    rng = np.random.default_rng(1)
    prior = rng.dirichlet(np.ones(6))
    left, right = rng.dirichlet(np.ones(4), size=6), rng.dirichlet(np.ones(3), size=6)  # p(l | w), p(r | w)
    truth = prior * left[:, 2] * right[:, 1]
    given_left, given_right = prior * left[:, 2], prior * right[:, 1]
    logs = [torch.tensor(np.log(p / p.sum())) for p in (given_left, given_right, prior)]
    both = torch.softmax(combine(*logs), dim=0)
    np.testing.assert_allclose(both, truth / truth.sum(), rtol=1e-9)


def test_unigram_by_rank_sums_to_one():
    unigram = zipf_unigram(50, specials=3)
    assert unigram[3:].exp().sum().item() == pytest.approx(1, rel=1e-5)
    assert (unigram[3:].diff() < 0).all()


def test_substitutes_are_the_blank_without_the_word(lm):
    tokens = ["a", "dog", "ran", "."]
    everywhere = lm.substitutes_everywhere(tokens, n=100)
    for k, word in enumerate(tokens):
        found = lm.substitutes(tokens, k, n=100)
        blank = lm.fill([*tokens[:k], BLANK, *tokens[k + 1 :]], n=100)
        for mine, theirs, other in zip(
            (found.forward, found.backward, found.both),
            (blank.forward, blank.backward, blank.both),
            (everywhere[k].forward, everywhere[k].backward, everywhere[k].both),
            strict=True,
        ):
            left = 1 - dict(theirs)[word]
            assert word not in dict(mine)
            assert {w: pytest.approx(p / left, rel=1e-4) for w, p in theirs if w != word} == dict(mine)
            assert dict(other) == pytest.approx(dict(mine), rel=1e-4)
    assert lm.substitutes(tokens, -1) == lm.substitutes(tokens, 3)
    with pytest.raises(InputError, match=r"position 4 .* 0 to 3"):
        lm.substitutes(tokens, 4)
    with pytest.raises(InputError, match=r"one sentence was expected, .* got None"):
        lm.substitutes(None, 0)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the ___ sat .", ["the", BLANK, "sat", "."]),
        ("the ____.", ["the", BLANK, "."]),
        ("Mr. ___ sat.", ["Mr.", BLANK, "sat", "."]),
        ("a blank of the ___'s", ["a", "blank", "of", "the", BLANK, "'s"]),
    ],
)
def test_blanks_in_text(text, tokens):
    assert list(read_context(text, load_tokenizer("english")).tokens) == tokens


def test_names_with_underscores_are_no_blanks():
    assert read_context("call __init__ now", load_tokenizer("whitespace")).tokens == ("call", "__init__", "now")
    assert read_context(["__init__", "____"], load_tokenizer("english")).tokens == ("__init__", BLANK)


def test_blanks_between_characters_without_spaces():
    assert read_context("我坐在___上", load_tokenizer("unicode")).tokens == ("我", "坐", "在", BLANK, "上")


@pytest.mark.parametrize(("text", "count"), [("the cat", 0), ("the ___ sat on ___", 2)])
def test_one_blank_is_expected(lm, text, count):
    with pytest.raises(InputError, match=f"found {count} blanks"):
        lm.fill(text)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_sampling_step_by_step_is_reading_anew(lm, direction):
    """The greedy word after each written word equals the best word of a run over everything so far."""
    given = ["the", "cat"]
    sample = lm.sample(given, direction=direction, n_words=6, temperature=0)
    expected: list[str] = []
    while len(expected) < 6:
        if direction == "forward":
            best = lm.next_words([*given, *expected], n=1)[0].word
        else:
            best = lm.previous_words([*expected[::-1], *given], n=1)[0].word
        if best in ("<S>", "</S>"):
            break
        expected.append(best)
    assert expected
    assert list(sample.written) == (expected if direction == "forward" else expected[::-1])
    assert sample.ended == (len(expected) < 6)
    whole = (*given, *sample.written) if direction == "forward" else (*sample.written, *given)
    assert sample.tokens == whole


def test_sampling_follows_the_distribution(lm):
    raw = after(lm, ["on"], "forward")
    raw[[number("<S>"), number("<UNK>")]] = -torch.inf
    expected = torch.softmax(raw / 0.7, dim=0).numpy()
    drawn = [lm.sample(["on"], n_words=1, temperature=0.7, seed=seed) for seed in range(1500)]
    words = [sample.written[0] if sample.written else "</S>" for sample in drawn]
    shares = np.array([words.count(word) for word in WORDS]) / len(words)
    assert np.abs(shares - expected).max() < 0.04
    assert all(sample.ended == (not sample.written) for sample in drawn)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.3, 3), (3.0, 3), (3.0, None)])
def test_temperature_counts_with_and_without_top_k(temperature, top_k):
    scores = torch.tensor([2.0, 0.0, 1.0, -1.0, -torch.inf])
    kept = scores.topk(top_k or len(scores)).indices
    expected = torch.zeros(5).index_copy(0, kept, torch.softmax(scores[kept] / temperature, dim=0))
    drawing, source = Drawing(temperature, top_k), torch.Generator().manual_seed(0)
    drawn = np.bincount([drawing.draw(scores, source) for _ in range(4000)], minlength=5) / 4000
    np.testing.assert_allclose(drawn, expected, atol=0.04)


def test_sampling_options(lm):
    assert lm.sample(["a"], seed=4) == lm.sample(["a"], seed=4)
    top = {word for word, _ in lm.next_words(["a"], n=2)} - {"</S>"}
    drawn = {lm.sample(["a"], n_words=1, top_k=2, seed=seed).written for seed in range(40)} - {()}
    assert {word for (word,) in drawn} == top
    for wrong in ({"temperature": -1.0}, {"temperature": math.nan}, {"temperature": math.inf}, {"top_k": 0}):
        with pytest.raises(InputError, match="expected"):
            lm.sample(["a"], **wrong)
