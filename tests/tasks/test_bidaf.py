"""BiDAF's parts equal plain loops; padding and neighbours change nothing."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.tasks.qa.network import BiAttention, Bidaf, BidafConfig, Ends, SelfAttention, Trilinear, best_spans
from elmokit.tasks.words import Side

LENGTHS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=3)


def mask_of(lengths: list[int], *, extra: int = 0) -> Tensor:
    return torch.arange(max(lengths) + extra) < torch.tensor(lengths)[:, None]


def similarity(layer: Trilinear, a: Tensor, b: Tensor) -> float:
    product = sum(float(layer.product[d] * a[d] * b[d]) for d in range(len(a)))
    return float(layer.first.weight[0] @ a + layer.second.weight[0] @ b) + product


def softmax(scores: list[float]) -> list[float]:
    total = sum(map(math.exp, scores))
    return [math.exp(score) / total for score in scores]


def weighed(weights: list[float], vectors: Tensor) -> Tensor:
    return sum((w * v for w, v in zip(weights, vectors, strict=True)), torch.zeros_like(vectors[0]))


@torch.no_grad()
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), lengths=LENGTHS)
def test_biattention_equals_a_loop(seed: int, lengths: list[tuple[int, int]]) -> None:
    torch.manual_seed(seed)
    layer = BiAttention(3).double()
    mask, question_mask = mask_of([t for t, _ in lengths], extra=1), mask_of([s for _, s in lengths], extra=2)
    texts = torch.randn(*mask.shape, 3, dtype=torch.float64)
    questions = torch.randn(*question_mask.shape, 3, dtype=torch.float64)
    found = layer(texts, questions, mask, question_mask)
    for k, (T, S) in enumerate(lengths):
        text, question = texts[k, :T], questions[k, :S]
        scores = [[similarity(layer.similarity, h, q) for q in question] for h in text]
        looked_for = weighed(softmax([max(row) for row in scores]), text)
        for t, h in enumerate(text):
            c = weighed(softmax(scores[t]), question)
            torch.testing.assert_close(found[k, t], torch.cat([h, c, h * c, looked_for * c]))


@torch.no_grad()
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_self_attention_equals_a_loop_and_leaves_the_word_itself_out(seed: int, lengths: list[int]) -> None:
    torch.manual_seed(seed)
    layer = SelfAttention(3).double()
    mask = mask_of(lengths, extra=1)
    texts = torch.randn(*mask.shape, 3, dtype=torch.float64)
    found = layer(texts, mask)
    for k, T in enumerate(lengths):
        for t, h in enumerate(texts[k, :T]):
            others = [j for j in range(T) if j != t]
            weights = softmax([similarity(layer.similarity, h, texts[k, j]) for j in others])
            c = weighed(weights, texts[k, others]) if others else torch.zeros(3).double()
            torch.testing.assert_close(found[k, t], torch.cat([h, c, h * c]))


@given(seed=st.integers(0, 1000), T=st.integers(1, 6), longest=st.integers(1, 8))
def test_the_best_span_is_the_best_of_all(seed: int, T: int, longest: int) -> None:
    torch.manual_seed(seed)
    ends = Ends(torch.randn(2, T).log_softmax(1), torch.randn(2, T).log_softmax(1))
    first, last, score = best_spans(ends, longest=longest)
    for k in range(2):
        spans = {
            (a, b): float(ends.start[k, a] + ends.end[k, b])
            for a, b in itertools.product(range(T), repeat=2)
            if 0 <= b - a < longest
        }
        found = int(first[k]), int(last[k])
        assert found == max(spans, key=lambda span: spans[span])
        assert float(score[k]) == pytest.approx(spans[found])


def side(lengths: list[int], seed: int, *, extra: int = 0) -> Side:
    """Words that depend on the row and the place alone; what stands at padding is not 0."""
    mask = mask_of(lengths, extra=extra)
    random = torch.Generator().manual_seed(seed)
    words = torch.randn(3, 12, 4, generator=random)[: len(lengths), : mask.shape[1]]
    above = torch.randn(3, 12, 2, generator=random)[: len(lengths), : mask.shape[1]]
    return Side(words, above, mask)


@torch.no_grad()
@settings(max_examples=20)
@given(lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=3))
def test_padding_and_neighbours_change_nothing(lengths: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    network = Bidaf(BidafConfig(hidden=3), width=4, output_width=2).eval()
    passages, questions = [t for t, _ in lengths], [s for _, s in lengths]
    plain = network(side(passages, 1), side(questions, 2))
    padded = network(side(passages, 1, extra=3), side(questions, 2, extra=2))
    for k, (T, S) in enumerate(lengths):
        alone = network(
            Side(*(part[k : k + 1, :T] for part in side(passages, 1))),
            Side(*(part[k : k + 1, :S] for part in side(questions, 2))),
        )
        for one, all_, more in zip(alone, plain, padded, strict=True):
            assert float(one.exp().sum()) == pytest.approx(1, abs=1e-5)
            torch.testing.assert_close(all_[k, :T], one[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(more[k, :T], one[0], atol=1e-5, rtol=1e-5)


def test_texts_without_words_do_no_harm() -> None:
    torch.manual_seed(0)
    network = Bidaf(BidafConfig(hidden=3), width=4, output_width=2)
    ends = network(side([3, 0], 1), side([0, 2], 2))
    assert torch.isfinite(ends.start).all()
    (ends.start[0, 0] + ends.end[0, 1]).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in network.parameters())


def test_every_weight_is_trained() -> None:
    torch.manual_seed(0)
    network = Bidaf(BidafConfig(hidden=3, dropout=0.0), width=4, output_width=2)
    ends = network(side([5, 4], 1), side([3, 2], 2))
    (ends.start[:, 1] + ends.end[:, 2]).sum().backward()
    # What is added to all places of a softmax alike changes nothing; rounding makes it next to nothing.
    idle = {name for name, p in network.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-6}
    assert idle <= {"start_score.bias", "end_score.bias", "self_attention.similarity.first.weight"}


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="hidden is 0"):
        BidafConfig(hidden=0)
