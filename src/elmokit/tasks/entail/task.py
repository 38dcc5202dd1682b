"""Pair classification: one label for two texts, by ESIM (Chen et al. 2017).

Entailment is the paper's use (Peters et al. 2018, sections 4, 5.2 and appendix), with ELMo at the input and at the
output of the first LSTM.

Files are TSV or CSV with a header, or JSON lines; the columns of SICK and SNLI are found by themselves.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elmokit.config import Share, Size, setting
from elmokit.errors import FormatError, InputError
from elmokit.formats import ReadReport, read_lines
from elmokit.formats.streams import source_name
from elmokit.nn.padded import SharedDropout, align, pool_max, pool_mean, run_recurrent
from elmokit.tasks.classes import ClassPrediction, LabelNetwork, LabelTask
from elmokit.tasks.labelled import named_format, open_labelled
from elmokit.tasks.labels import check_labels
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.task import Batch, Parts, two_texts
from elmokit.tasks.words import Side, WordFeaturesConfig
from elmokit.text import Sentence, Tokenizer

FIRST_FIELDS = ("premise", "sentence1", "sentence_A", "text1", "first")
SECOND_FIELDS = ("hypothesis", "sentence2", "sentence_B", "text2", "second")
LABEL_FIELDS = ("label", "gold_label", "entailment_judgment")
SEPARATORS = ("\t", " ||| ")  # between the two texts of a pair on one line


@dataclass(frozen=True, slots=True)
class EsimConfig:
    hidden: Size = setting(300, "LSTM cells in each direction, and the width of the projection and the classifier")
    dropout: Share = setting(0.5, "dropout on the input of each part of the network")


class Esim(nn.Module):
    """Word vectors of a batch of pairs to a score for each label."""

    def __init__(self, config: EsimConfig, *, width: int, output_width: int, n_labels: int) -> None:
        super().__init__()
        self.shared_dropout = SharedDropout(config.dropout)
        self.encoder = nn.LSTM(width, config.hidden, batch_first=True, bidirectional=True)
        self.projection = nn.Linear(4 * (2 * config.hidden + output_width), config.hidden)
        self.composition = nn.LSTM(config.hidden, config.hidden, batch_first=True, bidirectional=True)
        self.classifier = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(8 * config.hidden, config.hidden),
            nn.Tanh(),
            nn.Dropout(config.dropout),
            nn.Linear(config.hidden, n_labels),
        )

    def forward(self, premise: Side, hypothesis: Side) -> Tensor:
        """A score for each label. (B, K)"""
        a, b = self._encode(premise), self._encode(hypothesis)  # (B, S, E), (B, T, E)
        scores = a @ b.transpose(1, 2)  # (B, S, T)
        a_other = align(scores, b, hypothesis.mask)  # (B, S, E)
        b_other = align(scores.transpose(1, 2), a, premise.mask)  # (B, T, E)
        pooled = [*self._compose(a, a_other, premise.mask), *self._compose(b, b_other, hypothesis.mask)]
        found: Tensor = self.classifier(torch.cat(pooled, dim=-1))  # (B, K)
        return found

    def _encode(self, side: Side) -> Tensor:
        encoded = run_recurrent(self.encoder, self.shared_dropout(side.vectors), side.mask.sum(dim=1))  # (B, T, 2 H)
        return torch.cat([encoded, side.at_output], dim=-1)  # (B, T, E)

    def _compose(self, own: Tensor, other: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """What one text has become beside the other, pooled: its mean and its greatest. (B, 2 H) each"""
        enhanced = torch.cat([own, other, own - other, own * other], dim=-1)  # (B, T, 4 E)
        projected = self.shared_dropout(torch.relu(self.projection(enhanced)))  # (B, T, H)
        composed = run_recurrent(self.composition, projected, mask.sum(dim=1))  # (B, T, 2 H)
        return pool_mean(composed, mask), pool_max(composed, mask)


@dataclass(frozen=True, slots=True)
class PairSettings(EsimConfig):
    """Of the data, beside those of the network."""

    first_field: str = setting("", f"column of the first text; default: the first of {', '.join(FIRST_FIELDS)}")
    second_field: str = setting("", f"column of the second text; default: the first of {', '.join(SECOND_FIELDS)}")
    label_field: str = setting("", f"column of the label; default: the first of {', '.join(LABEL_FIELDS)}")
    tokenizer: str = setting("english", "tokenizer of the texts: english, unicode or whitespace")


@dataclass(frozen=True, slots=True)
class PairExample:
    """Two texts and the label between them; for entailment, premise and hypothesis."""

    first: Sentence
    second: Sentence
    label: str | None = None

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.first, self.second)


@dataclass(frozen=True, slots=True)
class PairConfig:
    """`labels` in the order of the network's outputs."""

    labels: tuple[str, ...]
    features: WordFeaturesConfig
    body: EsimConfig = field(default_factory=EsimConfig)

    def __post_init__(self) -> None:
        check_labels(self.labels)


class PairNetwork(LabelNetwork[PairExample]):
    """Word features, ESIM, a label."""

    Config, Body = PairConfig, Esim

    def forward(self, batch: Batch[PairExample]) -> Tensor:
        """A score for each label. (B, K)"""
        scores: Tensor = self.body(*map(self.features.side, batch.words))
        return scores


class PairClassification(LabelTask[PairExample]):
    """TSV, CSV and JSON lines of pairs."""

    name = "entail"
    help = "one label for two texts, entailment or any other, from TSV (SICK), CSV or JSONL (SNLI)"
    network, body, example = PairNetwork, EsimConfig, PairExample
    settings = PairSettings()
    text_fields: ClassVar = {"first_field": FIRST_FIELDS, "second_field": SECOND_FIELDS}
    label_fields = LABEL_FIELDS
    undecided = "-"  # SNLI's label of pairs that its annotators did not agree on
    features: Mapping[str, Any] = {"char_dim": 0, "elmo_at": "both", "elmo_l2": 0.001}
    training: Mapping[str, Any] = {"learning_rate": 4e-4, "clip_norm": 10.0}
    pairs = True
    quick: Mapping[str, Any] = {"hidden": 150, "epochs": 20, "patience": 4}

    def read(self, path: str | Path, settings: PairSettings) -> list[PairExample]:
        format, lines = open_labelled(path)
        if format == "trees":
            raise FormatError(f"{source_name(path)}: holds trees, expected a table or JSON lines with pairs of texts")
        return list(self.read_records(path, lines, format, settings))

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[PairExample]:
        """Two texts with a tab or " ||| " between them; blank text has none."""
        if not text.strip():
            return []
        for separator in SEPARATORS:
            parts = text.split(separator)
            if len(parts) == 2 and all(map(str.strip, parts)):
                return [pair_of(parts[0], parts[1], tokenizer)]
        raise InputError(f"{text[:40]!r} is not a pair; expected two texts with a tab or ' ||| ' between them")

    def examples(self, given: Any, tokenizer: Tokenizer) -> list[PairExample]:
        """A tuple of two texts, or one text as in `from_text`."""
        if isinstance(given, str) and given.strip():
            return self.from_text(given, tokenizer)
        return [pair_of(*two_texts(given), tokenizer)]

    def read_text(
        self,
        path: str | Path,
        settings: PairSettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[PairExample]:
        """The two text columns of CSV, TSV and JSON lines, whatever else they hold; of any other file its lines."""
        format = named_format(path)
        if format is None:
            return super().read_text(path, settings, tokenizer, field=field, report=report)
        if field:
            raise InputError(
                f"{path}: pairs stand in two fields, so one field ({field!r}) cannot be chosen; leave it out"
            )
        return self.read_records(path, read_lines(path, report=report), format, settings, unlabelled=tokenizer)

    def show(self, example: PairExample, prediction: ClassPrediction) -> Parts:
        return prediction.shown(f"{example.first.as_text} ||| {example.second.as_text}")

    def record(self, example: PairExample, prediction: ClassPrediction) -> dict[str, Any]:
        return {
            "first": example.first.as_text,
            "second": example.second.as_text,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }


class PairClassifier(TaskModel[str | tuple[str, str], ClassPrediction]):
    """A model of pair classification.

    PairClassifier.from_pretrained("model").predict(("It pours.", "It rains."))     # .label, .probability
    """

    task_class = "elmokit.tasks.entail.task:PairClassification"

    def predict_pairs(self, pairs: Iterable[tuple[str, str]]) -> list[ClassPrediction]:
        """The old name of `predict` for a list of pairs; removed in version 0.3."""
        warnings.warn("predict_pairs(pairs) is now predict(pairs)", DeprecationWarning, stacklevel=2)
        return self.predict(list(pairs))


def pair_of(first: str, second: str, tokenizer: Tokenizer) -> PairExample:
    """Two texts as a pair without a label."""
    return PairExample(tokenizer.tokenize(first), tokenizer.tokenize(second))


ENTAIL = PairClassification()
