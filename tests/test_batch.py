"""Sentences to batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elmokit.batch import build_batch, plan_batches
from elmokit.chars import ByteCodec
from elmokit.text import Sentence

sentences = st.lists(st.lists(st.sampled_from("abcde"), max_size=12).map(Sentence.of), max_size=30)


@given(sentences)
def test_a_batch_says_which_word_stands_where(given_sentences: list[Sentence]) -> None:
    batch = build_batch(given_sentences, ByteCodec())
    names = ["<S>", "</S>", *batch.words]
    assert len(set(batch.words)) == len(batch.words) == len(batch.types) - 2
    for sentence, index, length in zip(given_sentences, batch.index, batch.lengths, strict=True):
        assert length == len(sentence) + 2
        assert [names[k] for k in index[:length]] == ["<S>", *sentence.tokens, "</S>"]
        assert not index[length:].any()
    np.testing.assert_array_equal(batch.mask.sum(axis=1), batch.lengths)
    np.testing.assert_array_equal(batch.types[2:], ByteCodec().encode(batch.words))


@given(sentences, st.integers(1, 60), st.integers(1, 4))
def test_plans_hold_every_sentence_once_within_the_budget(
    given_sentences: list[Sentence], budget: int, window: int
) -> None:
    batches = list(plan_batches(given_sentences, batch_tokens=budget, window=window))
    assert sorted(k for batch in batches for k, _ in batch) == list(range(len(given_sentences)))
    for batch in batches:
        assert all(given_sentences[k] is sentence for k, sentence in batch)
        assert len(batch) == 1 or len(batch) * max(len(s) + 2 for _, s in batch) <= budget


def test_one_long_sentence_does_not_widen_the_short_ones() -> None:
    mixed = [Sentence.of(["w"] * 500), *[Sentence.of(["w"])] * 300]
    sizes = [len(batch) for batch in plan_batches(mixed, batch_tokens=600)]
    assert sizes == [1, 200, 100]


def test_plans_read_a_bounded_window_ahead() -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield Sentence.of(["w"] * 8)

    next(plan_batches(endless(), batch_tokens=20, window=3))  # type: ignore[arg-type]
    assert taken == 6
