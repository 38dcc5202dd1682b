"""End-to-end coreference by ranking spans (Lee et al. 2017).

Every span of up to ten words is a vector: the LSTM's output at its first and last word, a head that attends over its
words, and its width. A mention score prunes the spans; each that is left picks an antecedent among those before it, or
none, by the sum of both mention scores and a score of the pair. Trained on the marginal likelihood of all true
antecedents. First layers over concatenated vectors are sums of one product per part, so that what concerns a word or a
span alone is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import Depth, Positive, Rate, Share, Size, check, setting
from elmokit.layers import LayerStack
from elmokit.nn.padded import run_recurrent
from elmokit.tasks.coref._spans import Spans, keep_spans, list_spans, mark_clusters
from elmokit.tasks.coref.document import Cluster, CorefDocument, Mention, Resolved, order_clusters
from elmokit.tasks.task import Batch, Network
from elmokit.tasks.words import WordBatch, WordFeatures, WordFeaturesConfig

BUCKETS = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # distances, in spans kept; each bucket reaches to the next
PRONOUNS = {
    word: kind
    for kind, row in {"he": "he him his himself", "she": "she her hers herself", "it": "it its itself"}.items()
    for word in row.split()
}  # kinds that never mean the same
NUMBERS = 1 << 23  # of span and pair vectors that are made at a time where no gradient is needed


@dataclass(frozen=True, slots=True)
class CorefConfig:
    """Without `speakers` and `genres`, pairs have no such features. Sizes as published."""

    features: WordFeaturesConfig
    genres: tuple[str, ...] = ()
    speakers: bool = False
    hidden: Size = 200  # LSTM cells in each direction
    lstm_layers: Depth = setting(1, "number of LSTM layers", was="layers")
    scorer: Size = 150  # units in each of the two hidden layers of the scorers
    feature_dim: Size = 20  # of widths, distances, speakers, genres
    max_width: Size = 10  # words of a span
    kept: Rate = 0.4  # spans per word that survive pruning
    least_kept: Size = 1  # spans that survive in a short text; models that do not say were trained with 1
    antecedents: Positive = 250  # the nearest spans that are compared
    dropout: Share = 0.2
    train_sentences: Positive = 50  # of a document in one step of training; a longer one is cut, each time elsewhere

    def __post_init__(self) -> None:
        check(self)


class Kept(NamedTuple):
    """The spans that survived pruning, in the order of the text."""

    spans: Spans
    vectors: Tensor  # (M, G)
    scores: Tensor  # (M,)


class CorefNetwork(Network[CorefDocument, Resolved]):
    """One document at a time; the rows of its batch are its sentences."""

    Config = CorefConfig

    def __init__(self, config: CorefConfig) -> None:
        super().__init__()
        self.config = config
        self.features = WordFeatures(config.features)
        self.lstm = nn.LSTM(
            self.features.width,
            config.hidden,
            config.lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.lstm_layers > 1 else 0.0,
        )
        self.dropout = nn.Dropout(config.dropout)
        context = 2 * config.hidden + self.features.output_width
        self.parts = (context, context, self.features.width, config.feature_dim)  # first, last word, head, width
        width = sum(self.parts)  # G
        self.widths = nn.Embedding(config.max_width, config.feature_dim)
        self.distances = nn.Embedding(len(BUCKETS), config.feature_dim)
        self.same_speaker = nn.Embedding(3, config.feature_dim) if config.speakers else None  # not known, no, yes
        self.genres = nn.Embedding(len(config.genres) + 1, config.feature_dim) if config.genres else None
        told = 1 + (self.same_speaker is not None) + (self.genres is not None)
        self.attention = Scorer(context, config)
        self.mention = Scorer(width, config)
        self.pair = Scorer(3 * width + told * config.feature_dim, config)

    def loss(self, batch: Batch[CorefDocument]) -> Tensor:
        """-log p of all true antecedents, summed over the spans kept."""
        document, words, first = self._window(batch)
        if not len(words.mask) or not words.mask.any():
            return self.features.penalty() + 0 * self.distances.weight.sum()
        kept = self._kept(words)
        true = mark_clusters(kept.spans, document.clusters or (), first)  # (M,)
        scores = self._antecedents(kept, document, first)  # (M, 1 + A)
        return marginal_loss(scores, true) + self.features.penalty()

    @torch.no_grad()
    def predict(self, batch: Batch[CorefDocument]) -> list[Resolved]:
        """The clusters of the document; a span without a partner is in none."""
        (document,), (words,) = batch.examples, batch.words
        if not len(document):
            return [Resolved(())]
        kept = self._kept(words)
        return [document.resolve(link(kept.spans, self._antecedents(kept, document, 0), document.words))]

    def _window(self, batch: Batch[CorefDocument]) -> tuple[CorefDocument, WordBatch, int]:
        """At most `train_sentences` sentences in a row, from a random place on, and the number of their first word."""
        (document,), (words,) = batch.examples, batch.words
        spare = len(words.ids) - self.config.train_sentences
        if spare <= 0:
            return document, words, 0
        begin = int(torch.randint(spare + 1, ()))
        return document, _rows(words, begin, begin + self.config.train_sentences), document.starts[begin]

    def _kept(self, words: WordBatch) -> Kept:
        """Words to the spans that are worth comparing. N is the number of words, W the longest span."""
        given = self.features(words)  # (B, T, D)
        context = self.dropout(run_recurrent(self.lstm, given, words.lengths))  # (B, T, 2 H)
        context = torch.cat([context, self.features.at_output(words)], dim=-1)[words.mask]  # (N, 2 H + ...)
        given = given[words.mask]  # (N, D)
        sentences = words.mask.nonzero()[:, 0]  # (N,)
        spans = list_spans(sentences, self.config.max_width)
        heads = self._attend(context)  # (N, W, W)
        scores = self._mention_scores(context, given, heads)[spans.starts, spans.widths]  # (S,)
        chosen = keep_spans(spans, scores, max(self.config.least_kept, int(self.config.kept * len(given))))
        spans = spans.pick(chosen)
        within = given[_places(spans.starts, self.config.max_width, len(given))]  # (M, W, D)
        attended = torch.bmm(heads[spans.starts, spans.widths][:, None], within)[:, 0]  # (M, D)
        vectors = torch.cat([context[spans.starts], context[spans.ends], attended, self.widths(spans.widths)], dim=-1)
        return Kept(spans, vectors, scores[chosen])

    def _attend(self, context: Tensor) -> Tensor:
        """How much each word of each span is its head: by first word, width and word of the span. (N, W, W)"""
        W = self.config.max_width
        scores = _windows(self.attention(context), W)  # (N, W)
        ahead = torch.ones(W, W, dtype=torch.bool, device=scores.device).triu(1)  # words behind the span's end
        return scores[:, None].masked_fill(ahead, -torch.inf).softmax(dim=-1)

    def _mention_scores(self, context: Tensor, given: Tensor, heads: Tensor) -> Tensor:
        """Of all spans by first word and width, also of those that leave their sentence. (N, W)"""
        W, N = self.config.max_width, len(given)
        begin, end, head, width = torch.split(self.mention.first.weight, list(self.parts), dim=1)
        first, last, inside = context @ begin.T, context @ end.T, given @ head.T  # (N, F) each
        wide = self.widths.weight @ width.T + self.mention.first.bias  # (W, F)
        rows = N if torch.is_grad_enabled() else max(1, NUMBERS // (W * first.shape[1]))
        scored: list[Tensor] = []
        for k in range(0, N, rows):
            at = slice(k, k + rows)
            places = _places(torch.arange(N, device=first.device)[at], W, N)  # (n, W)
            hidden = first[at, None] + last[places] + torch.bmm(heads[at], inside[places]) + wide  # (n, W, F)
            scored.append(self.mention.finish(hidden))
        return torch.cat(scored)

    def _antecedents(self, kept: Kept, document: CorefDocument, first: int) -> Tensor:
        """Scores of linking each span to none (0) and to the A spans before it, the nearest first. (M, 1 + A)"""
        M = len(kept.spans)
        reach = min(self.config.antecedents, max(M - 1, 0))  # A
        device = kept.vectors.device
        offsets = torch.arange(1, reach + 1, device=device)  # (A,)
        before = torch.arange(M, device=device)[:, None] - offsets  # (M, A)
        there, before = before >= 0, before.clamp(min=0)
        G = kept.vectors.shape[1]
        told = self.pair.first.weight.shape[1] - 3 * G
        anaphor, antecedent, product, known = torch.split(self.pair.first.weight, [G, G, G, told], dim=1)
        here, behind = kept.vectors @ anaphor.T, kept.vectors @ antecedent.T  # (M, F)
        rows = M if torch.is_grad_enabled() else max(1, NUMBERS // max(reach * G, 1))
        scored: list[Tensor] = []
        for k in range(0, M, rows):
            at = slice(k, k + rows)
            alike = (kept.vectors[at, None] * kept.vectors[before[at]]) @ product.T  # (m, A, F)
            facts = self._facts(kept, document, first, at, before[at], offsets) @ known.T  # (m, A, F)
            hidden = here[at, None] + behind[before[at]] + alike + facts + self.pair.first.bias
            scored.append(self.pair.finish(hidden))  # (m, A)
        scores = torch.cat(scored) + kept.scores[:, None] + kept.scores[before]
        none = scores.new_zeros(M, 1)
        return torch.cat([none, scores.masked_fill(~there, -torch.inf)], dim=1)

    def _facts(
        self, kept: Kept, document: CorefDocument, first: int, at: slice, before: Tensor, offsets: Tensor
    ) -> Tensor:
        """What is known of the pairs of some spans besides their words: distance, speakers, genre. (m, A, told)"""
        m, A = before.shape
        buckets = torch.bucketize(offsets, torch.tensor(BUCKETS, device=offsets.device), right=True) - 1  # (A,)
        facts = [self.distances(buckets).expand(m, A, -1)]
        if self.same_speaker is not None:
            same = torch.zeros_like(before)  # 0: not known
            if document.speakers is not None:
                numbers = {name: k for k, name in enumerate(dict.fromkeys(document.speakers))}
                words = torch.tensor([numbers[name] for name in document.speakers], device=before.device)  # (N,)
                speakers = words[kept.spans.starts + first]  # (M,)
                same = 1 + (speakers[at, None] == speakers[before]).long()
            facts.append(self.same_speaker(same))
        if self.genres is not None:
            genre = document.genre or ""
            number = self.config.genres.index(genre) + 1 if genre in self.config.genres else 0
            facts.append(self.genres.weight[number].expand(m, A, -1))
        return torch.cat(facts, dim=-1)


class Scorer(nn.Module):
    """A score from two hidden layers; the first is left open to those who take it apart."""

    def __init__(self, width: int, config: CorefConfig) -> None:
        super().__init__()
        self.first = nn.Linear(width, config.scorer)
        self.second = nn.Linear(config.scorer, config.scorer)
        self.last = nn.Linear(config.scorer, 1)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (...)"""
        return self.finish(self.first(x))

    def finish(self, hidden: Tensor) -> Tensor:
        """From what the first layer gave. (..., F) to (...)"""
        hidden = self.dropout(torch.relu(hidden))
        hidden = self.dropout(torch.relu(self.second(hidden)))
        score: Tensor = self.last(hidden)[..., 0]
        return score


def marginal_loss(scores: Tensor, clusters: Tensor) -> Tensor:
    """-sum_i log sum_{true j} p(j | i), p the softmax of row i of `scores` (M, 1 + A), j in `clusters` (M,).

    Column 0 is no antecedent: true where none of the others is; column k is the k-th span before.
    """
    M, columns = scores.shape
    before = torch.arange(M, device=scores.device)[:, None] - torch.arange(1, columns, device=scores.device)
    same = (clusters[before.clamp(min=0)] == clusters[:, None]) & (clusters[:, None] > 0) & (before >= 0)  # (M, A)
    true = torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)  # (M, 1 + A)
    return (scores.logsumexp(dim=1) - scores.masked_fill(~true, -torch.inf).logsumexp(dim=1)).sum()


def link(spans: Spans, scores: Tensor, words: Sequence[str]) -> tuple[Cluster, ...]:
    """Clusters from `scores` (M, 1 + A): column 0 is none, column k the k-th span before.

    Each span joins the cluster of its best antecedent that it fits into: no cluster has two spans with the same first
    word ("his" and "his wife"), or pronouns of two kinds ("he" and "she").
    """
    places = list(zip(spans.starts.tolist(), (spans.ends + 1).tolist(), strict=True))
    kinds = [PRONOUNS.get(words[start].lower(), "") if end == start + 1 else "" for start, end in places]
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    counts = (ranked > 0).sum(dim=1).tolist()  # of antecedents better than none
    homes = [[k] for k in range(len(places))]
    for k, count in enumerate(counts):
        for choice in order[k, :count].tolist():
            home = homes[k - choice]
            if all(places[i][0] != places[k][0] and kinds[i] in ("", kinds[k] or kinds[i]) for i in home):
                home.append(k)
                homes[k] = home
                break
    distinct = {id(home): home for home in homes if len(home) > 1}.values()
    return order_clusters([[Mention(*places[k]) for k in home] for home in distinct])


def _windows(x: Tensor, width: int) -> Tensor:
    """Each word and the `width - 1` behind it. (N, ...) to (N, W, ...)"""
    return x[_places(torch.arange(len(x), device=x.device), width, len(x))]


def _places(starts: Tensor, width: int, n: int) -> Tensor:
    """The words from each start on; the last of the document stands for those behind its end. (S,) to (S, W)"""
    return (starts[:, None] + torch.arange(width, device=starts.device)).clamp(max=n - 1)


def _rows(words: WordBatch, begin: int, end: int) -> WordBatch:
    """Some sentences of a batch."""
    rows = slice(begin, end)
    stack = words.stack
    if stack is not None:
        stack = LayerStack(stack.values[:, rows], stack.mask[rows], stack.names, stack.bounded)
    places = None if words.places is None else words.places[rows]
    return replace(words, ids=words.ids[rows], mask=words.mask[rows], places=places, stack=stack)
