"""Span ranking: spans, pruning, likelihood and linking against brute force; padding; learning a toy text."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.layers import LayerStack
from elmokit.tasks.coref._spans import Spans, keep_spans, list_spans, mark_clusters
from elmokit.tasks.coref.document import CorefDocument, Mention, Resolved, order_clusters, place_sentences
from elmokit.tasks.coref.network import BUCKETS, CorefConfig, CorefNetwork, link, marginal_loss
from elmokit.tasks.coref.scores import score_clusters
from elmokit.tasks.task import Batch
from elmokit.tasks.words import WordBatch, WordFeaturesConfig, WordReader, WordVocabulary

TEXT = "ann bob carl dora she he her sees likes meets the dog of . and"
WORDS = WordVocabulary(TEXT.split())
FEATURES = WordFeaturesConfig(n_words=len(WORDS), word_dim=6, char_dim=3, char_filters=((2, 4),))
ELMO = replace(FEATURES, elmo_depth=2, elmo_width=5, elmo_at="input")
SMALL = CorefConfig(FEATURES, hidden=5, scorer=7, feature_dim=3, max_width=3, antecedents=6, dropout=0.0)


def network_of(config: CorefConfig, seed: int = 0) -> CorefNetwork:
    torch.manual_seed(seed)
    return CorefNetwork(config).eval()


def document_of(*sentences: str, speakers: str | None = None, genre: str | None = None) -> CorefDocument:
    placed = place_sentences([sentence.split() for sentence in sentences])
    told = None if speakers is None else tuple(speakers)
    return CorefDocument("made", placed, speakers=told, genre=genre)


def batch_of(document: CorefDocument, config: CorefConfig, *, padding: int = 0) -> Batch[CorefDocument]:
    words = WordReader(WORDS, config.features).batch(document.sentences)
    stack = None
    if config.features.elmo_at != "none":
        made = torch.Generator().manual_seed(3)
        values = torch.zeros(config.features.elmo_depth, *words.ids.shape, config.features.elmo_width)
        for row, sentence in enumerate(document.sentences):
            values[:, row, : len(sentence)] = torch.randn(values[:, row, : len(sentence)].shape, generator=made)
        stack = LayerStack(values, words.mask, tuple(map(str, range(len(values)))))
    words = replace(words, stack=stack)
    if padding:
        words = padded(words, padding)
    return Batch([document], (words,))


def padded(words: WordBatch, n: int) -> WordBatch:
    def more(x: Tensor, fill: float) -> Tensor:
        return torch.cat([x, torch.full((x.shape[0], n, *x.shape[2:]), fill, dtype=x.dtype)], dim=1)

    stack = words.stack
    if stack is not None:
        junk = torch.full((len(stack.values), len(words.ids), n, stack.values.shape[-1]), 1e4)
        stack = replace(stack, values=torch.cat([stack.values, junk], dim=2), mask=more(stack.mask, False))
    assert words.places is not None
    return replace(
        words, ids=more(words.ids, 0), mask=more(words.mask, False), places=more(words.places, 0), stack=stack
    )


@given(st.lists(st.integers(1, 6), max_size=5), st.integers(1, 4))
def test_spans_are_all_there_are(lengths: list[int], max_width: int) -> None:
    sentences = torch.tensor([k for k, n in enumerate(lengths) for _ in range(n)], dtype=torch.long)
    spans = list_spans(sentences, max_width)
    expected = [
        (start, end)
        for start, end in product(range(len(sentences)), repeat=2)
        if start <= end < start + max_width and sentences[start] == sentences[end]
    ]
    assert list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), unique=True), st.integers(0, 12), st.integers(0, 99))
def test_pruning_keeps_the_best_that_do_not_cross(given_spans: list[tuple[int, int]], limit: int, seed: int) -> None:
    given_spans = sorted(given_spans)
    scores = torch.rand(len(given_spans), generator=torch.Generator().manual_seed(seed))
    kept: list[int] = []
    for k in sorted(range(len(given_spans)), key=lambda k: -float(scores[k])):
        start, end = given_spans[k][0], sum(given_spans[k])
        others = [(given_spans[i][0], sum(given_spans[i])) for i in kept]
        if len(kept) < limit and not any(a < start <= b < end or start < a <= end < b for a, b in others):
            kept.append(k)
    table = torch.tensor(given_spans, dtype=torch.long).reshape(-1, 2)
    assert keep_spans(Spans(table[:, 0], table[:, 1]), scores, limit).tolist() == sorted(kept)


def test_clusters_are_marked_from_1_and_counted_from_the_window() -> None:
    spans = Spans(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 2]))
    clusters = [[Mention(5, 6), Mention(0, 1)], [Mention(6, 9)]]
    assert mark_clusters(spans, clusters, 5).tolist() == [1, 0, 2]
    assert mark_clusters(spans, clusters).tolist() == [1, 0, 0]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 1000))
def test_the_likelihood_is_the_sum_over_all_right_choices(clusters: list[int], reach: int, seed: int) -> None:
    """Every way to choose antecedents is written down with its probability; those that are right are added up."""
    M = len(clusters)
    reach = min(reach, M - 1)
    scores = torch.randn(M, reach, generator=torch.Generator().manual_seed(seed)).double()
    there = torch.tensor([[i - k >= 0 for k in range(1, reach + 1)] for i in range(M)], dtype=torch.bool)
    table = torch.cat([torch.zeros(M, 1), scores.masked_fill(~there, -torch.inf)], dim=1)  # (M, 1 + A)
    chances = table.softmax(dim=1).tolist()
    right = 0.0
    for choice in product(range(reach + 1), repeat=M):
        fits = True
        for i, k in enumerate(choice):
            true = [j for j in range(1, reach + 1) if i - j >= 0 and clusters[i] and clusters[i - j] == clusters[i]]
            fits &= k in (true or [0])
        right += math.prod(chances[i][k] for i, k in enumerate(choice)) if fits else 0.0
    assert float(marginal_loss(table, torch.tensor(clusters))) == pytest.approx(-math.log(right))


def table(choices: list[int]) -> Tensor:
    """Scores by which each span chooses the k-th span before it, 0 for none."""
    return 2 * torch.nn.functional.one_hot(torch.tensor(choices), len(choices)).double() - 1


def test_links_become_clusters() -> None:
    spans = Spans(torch.tensor([0, 2, 4, 6, 8]), torch.tensor([0, 1, 0, 0, 0]))
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
    assert link(spans, table([0, 0, 2, 2, 0]), words) == (((0, 1), (4, 5)), ((2, 4), (6, 7)))
    assert link(spans, table([0, 1, 1, 1, 1]), words) == (((0, 1), (2, 4), (4, 5), (6, 7), (8, 9)),)
    assert link(spans, table([0] * 5), words) == ()


def test_a_cluster_has_pronouns_of_one_kind() -> None:
    """`She` likes Bob best, but Bob is `he`; the next best is Ann. `It` finds nobody."""
    words = ["Ann", "told", "Bob", "that", "he", "won", ";", "She", "kept", "It"]
    spans = Spans(torch.tensor([0, 2, 4, 7, 9]), torch.zeros(5, dtype=torch.long))
    scores = table([0, 0, 1, 0, 1])
    scores[3, 1:4] = torch.tensor([3.0, 2.0, 1.0])  # he, Bob, Ann
    assert link(spans, scores, words) == (((0, 1), (7, 8)), ((2, 3), (4, 5)))


def test_a_mention_does_not_begin_with_another_of_its_cluster() -> None:
    words = ["Bob", "met", "his", "wife"]
    spans = Spans(torch.tensor([0, 2, 2]), torch.tensor([0, 0, 1]))
    assert link(spans, table([0, 1, 1]), words) == (((0, 1), (2, 3)),)


@pytest.mark.parametrize("elmo_at", ["none", "input", "output", "both"])
def test_scores_equal_the_formulas_written_out(elmo_at: str) -> None:
    """The network as published, span by span and pair by pair, with nothing taken apart or computed at once."""
    config = replace(SMALL, features=replace(ELMO, elmo_at=elmo_at), speakers=True, genres=("bc",), kept=0.8)
    net = network_of(config)
    document = document_of("ann sees the dog", "she likes her", speakers="AAAABBB", genre="bc")
    (words,) = batch_of(document, config).words
    given = net.features(words)
    context = torch.cat(
        [
            torch.cat([net.lstm(given[k : k + 1, :n])[0][0] for k, n in enumerate([4, 3])]),
            torch.cat([net.features.at_output(words)[k, :n] for k, n in enumerate([4, 3])]),
        ],
        dim=-1,
    )
    flat = torch.cat([given[0, :4], given[1, :3]])

    def vector(start: int, end: int) -> Tensor:
        weights = net.attention(context[start : end + 1]).softmax(dim=0)
        head = (weights[:, None] * flat[start : end + 1]).sum(dim=0)
        return torch.cat([context[start], context[end], head, net.widths.weight[end - start]])

    kept = net._kept(words)
    scores = net._antecedents(kept, document, 0)
    spans = list(zip(kept.spans.starts.tolist(), kept.spans.ends.tolist(), strict=True))
    assert len(spans) == 5
    for i, span in enumerate(spans):
        torch.testing.assert_close(kept.vectors[i], vector(*span))
        torch.testing.assert_close(kept.scores[i], net.mention(vector(*span)))
        assert scores[i, 0] == 0
        for k in range(1, 5):
            if i - k < 0:
                assert scores[i, k] == -torch.inf
                continue
            other = spans[i - k]
            same = document.speakers[span[0]] == document.speakers[other[0]]  # type: ignore[index]
            assert net.same_speaker is not None
            assert net.genres is not None
            facts = torch.cat(
                [net.distances.weight[BUCKETS.index(k)], net.same_speaker.weight[1 + same], net.genres.weight[1]]
            )
            a, b = vector(*span), vector(*other)
            expected = net.mention(a) + net.mention(b) + net.pair(torch.cat([a, b, a * b, facts]))
            torch.testing.assert_close(scores[i, k], expected)


def test_the_spans_kept_are_those_with_the_best_scores() -> None:
    net = network_of(SMALL)
    document = document_of("ann sees the dog of bob", "she likes her dog")
    (words,) = batch_of(document, SMALL).words
    kept = net._kept(words)
    assert len(kept.spans) == int(0.4 * 10)
    every = list_spans(words.mask.nonzero()[:, 0], SMALL.max_width)
    all_of_them = network_of(replace(SMALL, kept=100.0))._kept(words)
    assert len(all_of_them.spans) < len(every)  # those that cross are left out at any rate
    best = keep_spans(all_of_them.spans, all_of_them.scores, 4)
    assert all_of_them.spans.pick(best).starts.tolist() == kept.spans.starts.tolist()
    assert len(network_of(replace(SMALL, least_kept=6))._kept(words).spans) == 6
    assert len(network_of(replace(SMALL, least_kept=3))._kept(words).spans) == 4


@pytest.mark.parametrize("features", [FEATURES, ELMO, replace(ELMO, elmo_at="both")])
def test_padding_changes_nothing(features: WordFeaturesConfig) -> None:
    config = replace(SMALL, features=features)
    net = network_of(config)
    document = replace(
        document_of("ann sees bob", "she likes him and the dog", "."),
        clusters=order_clusters([[Mention(0, 1), Mention(3, 4)], [Mention(2, 3), Mention(5, 6)]]),
    )
    plain, wide = batch_of(document, config), batch_of(document, config, padding=3)
    torch.testing.assert_close(net.loss(wide), net.loss(plain))
    assert net.predict(wide) == net.predict(plain)


def test_prediction_in_pieces_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network_of(SMALL)
    document = document_of(*["ann sees the dog of bob", "she likes her dog"] * 3)
    (words,) = batch_of(document, SMALL).words
    with torch.no_grad():
        kept = net._kept(words)
        whole = net._antecedents(kept, document, 0)
        monkeypatch.setattr("elmokit.tasks.coref.network.NUMBERS", 1)
        torch.testing.assert_close(net._antecedents(kept, document, 0), whole)
        torch.testing.assert_close(net._kept(words).scores, kept.scores)


def test_a_long_document_is_cut_in_training_and_whole_in_prediction() -> None:
    config = replace(SMALL, train_sentences=2, kept=10.0, antecedents=50, speakers=True)
    net = network_of(config)
    clusters = order_clusters([[Mention(0, 1), Mention(3, 4), Mention(6, 7)]])
    sentences, speakers = ("ann sees bob", "ann likes carl", "ann meets dora"), "AAABBBABA"
    document = replace(document_of(*sentences, speakers=speakers), clusters=clusters)
    torch.manual_seed(0)
    losses = {round(float(net.loss(batch_of(document, config)).detach()), 4) for _ in range(12)}
    halves = []
    for first in (0, 1):
        part = replace(
            document_of(*sentences[first : first + 2], speakers=speakers[3 * first : 3 * first + 6]),
            clusters=order_clusters([[Mention(0, 1), Mention(3, 4)]]),
        )
        halves.append(round(float(net.loss(batch_of(part, config)).detach()), 4))
    assert losses == set(halves)
    assert any(mention.end > 6 for cluster in net.predict(batch_of(document, config))[0].words for mention in cluster)


@pytest.mark.parametrize("sentences", [(), ("",), (".",), ("ann",)])
def test_documents_of_hardly_any_words(sentences: tuple[str, ...]) -> None:
    net = network_of(SMALL).train()
    document = document_of(*sentences)
    batch = batch_of(document, SMALL)
    net.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert net.predict(batch) == [Resolved(())]


def test_features_of_columns_that_are_not_there_count_as_not_known() -> None:
    config = replace(SMALL, speakers=True, genres=("bc", "nw"))
    net = network_of(config)
    for document in (document_of("ann sees bob"), document_of("ann sees bob", speakers="AAB", genre="other")):
        assert torch.isfinite(net.loss(batch_of(document, config)))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="antecedents is 0"):
        CorefConfig(FEATURES, antecedents=0)
    with pytest.raises(ConfigError, match="kept is 0"):
        CorefConfig(FEATURES, kept=0)


def test_it_learns_whom_she_and_he_mean() -> None:
    """Ann and Dora are she, Bob and Carl are he: right only if the name is looked at."""
    people = {"ann": "she", "dora": "she", "bob": "he", "carl": "he"}
    documents = []
    for one, two in product(people, repeat=2):
        if people[one] != people[two]:
            for first in (one, two):
                sentences = (f"{one} meets {two} .", f"{people[first]} likes the dog .")
                clusters = order_clusters(
                    [[Mention(0 if first == one else 2, 1 if first == one else 3), Mention(4, 5)]]
                )
                documents.append(replace(document_of(*sentences), clusters=clusters))
    config = replace(SMALL, hidden=10, scorer=16, max_width=1, kept=1.0)
    batches = [batch_of(document, config) for document in documents]
    net = network_of(config).train()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(5):
        for batch in batches:
            optimizer.zero_grad()
            net.loss(batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    net.eval()
    scores = score_clusters((batch.examples[0].clusters or (), net.predict(batch)[0].words) for batch in batches)
    assert scores.average > 0.95
