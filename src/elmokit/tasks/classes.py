"""A label for each text or pair of texts: what such networks have in common, and how predictions are scored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.formats.records import RecordFormat
from elmokit.tasks.labelled import FieldChoice, read_labelled
from elmokit.tasks.labels import SpanCounts, count_types
from elmokit.tasks.task import Batch, Example, Network, Parts, Scores, Task
from elmokit.tasks.words import WordFeatures, WordFeaturesConfig
from elmokit.text import Tokenizer, load_tokenizer

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

    def shown(self, text: str) -> Parts:
        """The label, how sure it is, and the text."""
        return [(self.label, "bold"), (f" {self.probability:.2f}  {text}", "")]


class LabelNetwork(Network[L, ClassPrediction]):
    """Word features and a body. `forward` gives a score for each of `config.labels`: (B, K)."""

    Body: ClassVar[Callable[..., nn.Module]]  # made of `config.body` and the widths

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.features = WordFeatures(config.features)
        widths = {"width": self.features.width, "output_width": self.features.output_width}
        self.body = self.Body(config.body, **widths, n_labels=len(config.labels))

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


class LabelTask(Task[L, ClassPrediction]):
    """One label for each example; files are tables or JSON lines with a field for each text and one for the label."""

    body: ClassVar[type]  # configuration of the network's body; the task's settings have its fields
    text_fields: ClassVar[Mapping[str, tuple[str, ...]]]  # setting that names a text's field: its usual names
    label_fields: ClassVar[tuple[str, ...]]
    tables = (".csv", ".tsv")
    undecided: ClassVar[str | None] = None  # the label of records that are left out
    example: Callable[..., L]  # made of sentences and a label

    def new_network(
        self, train: Sequence[L], features: WordFeaturesConfig, settings: Any
    ) -> Network[L, ClassPrediction]:
        return self.network(self.network.Config(list_classes(train), features, part_of(self.body, settings)))

    def score(self, examples: Sequence[L], predictions: Sequence[ClassPrediction]) -> Scores:
        return score_classes(examples, predictions)

    def answer(self, predictions: list[ClassPrediction]) -> ClassPrediction:
        return predictions[0]

    def read_records(
        self,
        path: str | Path,
        lines: Iterator[str],
        format: RecordFormat,
        settings: Any,
        *,
        unlabelled: Tokenizer | None = None,
    ) -> Iterator[L]:
        """Texts and their labels; without labels where a tokenizer for such is given."""
        records = read_labelled(
            path,
            lines,
            format,
            texts=[FieldChoice(getattr(settings, name), name, usual) for name, usual in self.text_fields.items()],
            label=FieldChoice(settings.label_field, "label_field", self.label_fields),
            tokenizer=unlabelled or load_tokenizer(settings.tokenizer),
            need_label=unlabelled is None,
        )
        decided = (record for record in records if record.label is None or record.label != self.undecided)
        return (self.example(*record.sentences, label=record.label) for record in decided)


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
    overall, classes = count_types([(set(enumerate(gold)), set(enumerate(predicted)))], lambda numbered: numbered[1])
    return ClassScores(overall.recall, classes)


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
