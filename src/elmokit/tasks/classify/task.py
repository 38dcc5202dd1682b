"""Text classification: one label for each text, by the biattentive classification network.

Sentiment in five classes is the paper's use (Peters et al. 2018, section 4): trained on every labelled phrase of the
Stanford Sentiment Treebank's trees, scored on whole sentences.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from elmokit.config import setting
from elmokit.formats import ReadReport, format_of, read_lines, read_sentences
from elmokit.formats.streams import source_name
from elmokit.tasks.classes import ClassPrediction, LabelNetwork, LabelTask
from elmokit.tasks.classify._trees import read_trees
from elmokit.tasks.classify.network import Bcn, BcnConfig
from elmokit.tasks.labelled import named_format, open_labelled
from elmokit.tasks.labels import check_labels
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.task import Batch, Parts
from elmokit.tasks.words import WordFeaturesConfig
from elmokit.text import Sentence, Tokenizer

SENTIMENTS = ("very negative", "negative", "neutral", "positive", "very positive")  # what 0 to 4 mean in trees
TEXT_FIELDS = ("text", "sentence", "review", "content")
LABEL_FIELDS = ("label", "gold_label", "class", "category", "sentiment", "stars")


@dataclass(frozen=True, slots=True)
class ClassifySettings(BcnConfig):
    """Of the data, beside those of the network."""

    phrase_words: int = setting(
        1, "train on phrases of trees with at least this many words; 0: on whole sentences only"
    )
    text_field: str = setting("", f"column of the text; default: the first of {', '.join(TEXT_FIELDS)}")
    label_field: str = setting("", f"column of the label; default: the first of {', '.join(LABEL_FIELDS)}")
    tokenizer: str = setting("english", "tokenizer for CSV, TSV and JSONL: english, unicode or whitespace")


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text and its label."""

    sentence: Sentence
    label: str | None = None

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.sentence,)


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """`labels` in the order of the network's outputs."""

    labels: tuple[str, ...]
    features: WordFeaturesConfig
    body: BcnConfig = field(default_factory=BcnConfig)

    def __post_init__(self) -> None:
        check_labels(self.labels)


class ClassifierNetwork(LabelNetwork[TextExample]):
    """Word features, the biattentive network, a label."""

    Config, Body = ClassifierConfig, Bcn

    def forward(self, batch: Batch[TextExample]) -> Tensor:
        """A score for each label. (B, K)"""
        (words,) = batch.words
        scores: Tensor = self.body(self.features(words), self.features.at_output(words), words.mask)
        return scores


class Classification(LabelTask[TextExample]):
    """Trees, CSV, TSV and JSON lines; each use of it is an instance with its own name and defaults."""

    network, body, example = ClassifierNetwork, BcnConfig, TextExample
    settings = ClassifySettings()
    text_fields: ClassVar = {"text_field": TEXT_FIELDS}
    label_fields = LABEL_FIELDS
    # Without dropout on trained word vectors the accuracy on SST-5 was about two points lower.
    features: Mapping[str, Any] = {"char_dim": 0, "feature_dropout": 0.5, "elmo_l2": 0.001}
    training: Mapping[str, Any] = {"learning_rate": 5e-4, "epochs": 20}
    quick: Mapping[str, Any] = {"hidden": 100, "integrators": 1, "head_width": 200, "batch_size": 64, "patience": 3}

    def __init__(self, name: str, help: str, **quick: Any) -> None:
        self.name, self.help = name, help
        self.quick = {**self.quick, **quick}

    def read(self, path: str | Path, settings: ClassifySettings) -> list[TextExample]:
        """Whole texts."""
        format, lines = open_labelled(path)
        if format == "trees":
            trees = read_trees(lines, name=source_name(path))
            return [TextExample(tree.sentence, _sentiment(tree.label)) for tree in trees]
        return list(self.read_records(path, lines, format, settings))

    def training_examples(self, path: str | Path, settings: ClassifySettings) -> list[TextExample]:
        """Each distinct phrase of the trees, or whole texts of other files."""
        format, lines = open_labelled(path)
        if format != "trees" or settings.phrase_words < 1:
            return self.read(path, settings)
        phrases: dict[tuple[tuple[str, ...], str], None] = {}
        for tree in read_trees(lines, name=source_name(path)):
            for start, end, label in tree.phrases:
                if end - start >= min(settings.phrase_words, len(tree.sentence)):
                    phrases[tree.sentence.tokens[start:end], _sentiment(label)] = None
        return [TextExample(Sentence.of(tokens), label) for tokens, label in phrases]

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[TextExample]:
        """The whole text as one example; blank text has none."""
        return [TextExample(tokenizer.tokenize(text))] if text.strip() else []

    def examples(self, given: Any, tokenizer: Tokenizer) -> list[TextExample]:
        """The whole text, also where it is blank."""
        return super().examples(given, tokenizer) or [TextExample(tokenizer.tokenize(given))]

    def read_text(
        self,
        path: str | Path,
        settings: ClassifySettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[TextExample]:
        """The text column of CSV, TSV and JSON lines, the lines of text, or the sentences of any other format."""
        format = named_format(path)
        if format is None and format_of(path) != "text":
            sentences = read_sentences(path, tokenizer=tokenizer, field=field or "text", treebank=True, report=report)
            return map(TextExample, sentences)  # blank ones too: an answer for each row
        if format is None:
            return super().read_text(path, settings, tokenizer, report=report)
        settings = replace(settings, text_field=field) if field else settings
        return self.read_records(path, read_lines(path, report=report), format, settings, unlabelled=tokenizer)

    def show(self, example: TextExample, prediction: ClassPrediction) -> Parts:
        return prediction.shown(example.sentence.as_text)

    def record(self, example: TextExample, prediction: ClassPrediction) -> dict[str, Any]:
        places = example.sentence.places
        return {
            "text": example.sentence.as_text,
            "start": places[0][0] if places else 0,
            "end": places[-1][1] if places else 0,
            "label": prediction.label,
            "probabilities": prediction.probabilities,
        }


class Classifier(TaskModel[str, ClassPrediction]):
    """A model of text classification.

    Classifier.from_pretrained("model").predict("A lovely film.")      # .label, .probability, .probabilities
    """

    task_class = "elmokit.tasks.classify.task:Classification"


def _sentiment(label: str) -> str:
    """The name of a class that is a number from 0 to 4."""
    return SENTIMENTS[int(label)] if label in ("0", "1", "2", "3", "4") else label


SENTIMENT = Classification(
    "sentiment", "sentiment of the Stanford treebank's trees, phrase by phrase", phrase_words=4, epochs=5
)
CLASSIFY = Classification("classify", "one label a text, from CSV, TSV, JSONL or trees", epochs=15)
