"""A label for each text or pair of texts: what such networks have in common, and how predictions are scored."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar

import torch
from rich.markup import escape
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.tasks.labels import SpanCounts
from elmokit.tasks.task import Batch, Example, Network, Scores

C = TypeVar("C")


class LabelledExample(Example, Protocol):
    """An example with one label; None where it is not known."""

    @property
    def label(self) -> str | None: ...


L = TypeVar("L", bound=LabelledExample)


@dataclass(frozen=True, slots=True)
class ClassPrediction:
    """The most probable label, and how probable each of them is."""

    label: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    @property
    def markup(self) -> str:
        """The label and how sure it is, for a terminal."""
        return f"[bold]{escape(self.label)}[/bold] {self.probability:.2f}"


class LabelNetwork(Network[L, ClassPrediction]):
    """A network whose `forward` gives a score for each of `config.labels`: (B, K)."""

    def loss(self, batch: Batch[L]) -> Tensor:
        scores = self(batch)  # (B, K)
        gold = torch.tensor([self._number(example.label) for example in batch.examples], device=scores.device)  # (B,)
        return nn.functional.cross_entropy(scores, gold) + self.features.penalty()

    @torch.no_grad()
    def predict(self, batch: Batch[L]) -> list[ClassPrediction]:
        found = []
        for row in torch.softmax(self(batch).float(), dim=-1).tolist():
            probabilities = dict(zip(self.config.labels, row, strict=True))
            found.append(ClassPrediction(max(probabilities, key=probabilities.__getitem__), probabilities))
        return found

    def _number(self, label: str | None) -> int:
        labels: tuple[str, ...] = self.config.labels
        if label not in labels:
            raise InputError(f"label {label!r} is not among the network's: {', '.join(labels)}")
        return labels.index(label)


@dataclass(frozen=True, slots=True)
class ClassScores:
    """`classes` has every label that was given or predicted; `macro_f1` is the plain mean of their F1."""

    accuracy: float
    classes: dict[str, SpanCounts]

    @property
    def macro_f1(self) -> float:
        return sum(counts.f1 for counts in self.classes.values()) / len(self.classes) if self.classes else 0.0


def count_classes(gold: Sequence[str], predicted: Sequence[str]) -> ClassScores:
    """One label a text on each side; no texts score 0."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} texts have labels, but {len(predicted)} predictions were given")
    there, found = Counter(gold), Counter(predicted)
    right = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    labels = sorted(there.keys() | found.keys())
    classes = {label: SpanCounts(found[label], there[label], right[label]) for label in labels}
    return ClassScores(right.total() / len(gold) if gold else 0.0, classes)


def score_classes(examples: Sequence[LabelledExample], predictions: Sequence[ClassPrediction]) -> Scores:
    """The share of right labels, and the mean F1 of the classes."""
    gold = [example.label for example in examples]
    known = [label for label in gold if label is not None]
    if len(known) != len(gold):
        raise InputError(f"{len(gold) - len(known)} of {len(gold)} examples have no label to score by")
    counts = count_classes(known, [prediction.label for prediction in predictions])
    return {"accuracy": counts.accuracy, "macro_f1": counts.macro_f1}


def list_classes(examples: Iterable[LabelledExample]) -> tuple[str, ...]:
    """The labels that training examples have, sorted."""
    labels = tuple(sorted({example.label for example in examples if example.label is not None}))
    if len(labels) < 2:
        raise InputError(f"the training examples have the labels {list(labels)}; expected two or more")
    return labels


def part_of(kind: type[C], settings: Any) -> C:
    """The fields of a task's settings that make up its network's configuration."""
    return kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})  # type: ignore[arg-type]
