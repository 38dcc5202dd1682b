"""What a language model thinks of sentences, word by word and in sum. Log probabilities are in nats."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from elmokit.chars import BOS, EOS
from elmokit.encoders.batches import Placed
from elmokit.errors import InputError
from elmokit.text import Sentence


@dataclass(frozen=True, slots=True)
class SentenceScore:
    """The log probability of each prediction of one sentence: n words and one boundary, each way.

    `zip(score.forward_words, score.forward)` and `zip(score.backward_words, score.backward)` say what was predicted.
    A direction that the model does not have is None.
    """

    tokens: tuple[str, ...]  # n
    forward: tuple[float, ...] | None  # n + 1: every word given those before it, then the sentence's end
    backward: tuple[float, ...] | None  # n + 1: the sentence's begin, then every word given those after it
    unknown: tuple[bool, ...]  # n: the word is not in the vocabulary, and its probability is that of <UNK>

    @property
    def forward_words(self) -> tuple[str, ...]:
        return (*self.tokens, EOS)

    @property
    def backward_words(self) -> tuple[str, ...]:
        return (BOS, *self.tokens)

    @property
    def forward_total(self) -> float | None:
        """The log probability of the sentence, read forward."""
        return None if self.forward is None else math.fsum(self.forward)

    @property
    def backward_total(self) -> float | None:
        """The log probability of the sentence, read backward."""
        return None if self.backward is None else math.fsum(self.backward)

    @property
    def forward_perplexity(self) -> float | None:
        return _perplexity(self.forward_total, len(self.tokens) + 1)

    @property
    def backward_perplexity(self) -> float | None:
        return _perplexity(self.backward_total, len(self.tokens) + 1)

    @property
    def perplexity(self) -> float:
        """The geometric mean of the directions that the model has."""
        return _geometric_mean(self.forward_perplexity, self.backward_perplexity)


@dataclass(frozen=True, slots=True)
class PerplexityReport:
    """How well a text was predicted. Each direction predicts every word and one boundary per sentence."""

    sentences: int
    words: int
    unknown: int  # words outside the vocabulary; as targets they count as <UNK>, as input they keep their characters
    forward: float | None  # perplexities
    backward: float | None

    @property
    def mean(self) -> float:
        """The geometric mean of both directions: exp of the mean of their losses, as the paper reports it."""
        return _geometric_mean(self.forward, self.backward)

    @property
    def predictions(self) -> int:
        """Predictions in each direction."""
        return self.words + self.sentences

    @property
    def unknown_share(self) -> float:
        """The share of predictions whose target was <UNK>."""
        return self.unknown / self.predictions

    @classmethod
    def of(cls, scores: Iterable[SentenceScore]) -> "PerplexityReport":
        """The sum over sentences, read once and not kept."""
        sentences = words = unknown = 0
        totals: list[float | None] = [0.0, 0.0]
        for score in scores:
            sentences += 1
            words += len(score.tokens)
            unknown += sum(score.unknown)
            both = (score.forward_total, score.backward_total)
            totals = [None if a is None or b is None else a + b for a, b in zip(totals, both, strict=True)]
        if not sentences:
            raise InputError("no sentences to measure; expected text with at least one word")
        forward, backward = (_perplexity(total, words + sentences) for total in totals)
        return cls(sentences, words, unknown, forward, backward)


def _perplexity(total: float | None, predictions: int) -> float | None:
    return None if total is None else math.exp(-total / predictions)


def _geometric_mean(*perplexities: float | None) -> float:
    known = [p for p in perplexities if p is not None]
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def parallel_streams(sentences: Iterable[Sentence], streams: int) -> Iterator[list[Placed]]:
    """Batches of (position, sentence): row k of each is the next sentence of stream k, a contiguous part of the text.

    One stream is read as it comes. Of several, the longer ones come first, so that rows only ever leave from the back.
    """
    if streams < 1:
        raise InputError(f"{streams} streams asked for; expected at least 1")
    if streams == 1:
        yield from ([placed] for placed in enumerate(sentences))
        return
    placed = list(enumerate(sentences))
    size, longer = divmod(len(placed), streams)
    starts = [k * size + min(k, longer) for k in range(streams + 1)]
    for step in range(size + (longer > 0)):
        yield [placed[a + step] for a, b in pairwise(starts) if a + step < b]
