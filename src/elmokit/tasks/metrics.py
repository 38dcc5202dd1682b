"""Scores of predicted spans and words, by the rules of the CoNLL shared tasks' scorer.

A span counts when its first word, its last word and its type are right; precision, recall and F1 are over all spans of
all sentences, and 0 where there is nothing to divide by.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.errors import InputError
from elmokit.tasks.labels import read_spans


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans found, spans there are, and spans that are both."""

    found: int = 0
    gold: int = 0
    right: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True, slots=True)
class SpanScores:
    """All types together, each type, and the share of words whose label is right as it stands."""

    overall: SpanCounts
    types: dict[str, SpanCounts]
    accuracy: float

    @property
    def f1(self) -> float:
        return self.overall.f1


def score_spans(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Label sequences, sentence by sentence; the two sides may use different schemes (then accuracy says little)."""
    accuracy = label_accuracy(gold, predicted)
    found: Counter[str] = Counter()
    there: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for true, guessed in zip(gold, predicted, strict=True):
        true_spans, guessed_spans = set(read_spans(true)), set(read_spans(guessed))
        there.update(span.type for span in true_spans)
        found.update(span.type for span in guessed_spans)
        right.update(span.type for span in true_spans & guessed_spans)
    types = {type: SpanCounts(found[type], there[type], right[type]) for type in sorted(found.keys() | there.keys())}
    return SpanScores(SpanCounts(found.total(), there.total(), right.total()), types, accuracy)


def label_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of words whose label is right; 0 where there are none."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} sentences, but predictions for {len(predicted)}")
    words = same = 0
    for number, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(guessed):
            raise InputError(f"sentence {number} has {len(true)} labels, but {len(guessed)} were predicted")
        words += len(true)
        same += sum(a == b for a, b in zip(true, guessed, strict=True))
    return same / words if words else 0.0
