"""What a task is: how its data is read, which network learns it, how predictions are scored and shown.

    file -> examples -> batches of words -> Network -> predictions -> Scores

A task is one small object without state; the trainer, the cache of layers, saved models and the commands know nothing
of any task but this.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor, nn

from elmokit.config import plain, revive
from elmokit.errors import ConfigError, ElmokitError, InputError
from elmokit.formats import ReadReport, format_of, read_lines, read_sentences
from elmokit.formats.read import TABLES
from elmokit.formats.streams import source_name, suffix_of
from elmokit.tasks.words import WordBatch, WordFeatures, WordFeaturesConfig
from elmokit.text import Sentence, Tokenizer

Parts = list[tuple[str, str]]  # text for people to read, each piece with a style of rich's, "" for none
Scores = dict[str, float]  # name to value, from 0 to 1; the first is the one that counts, and higher is better


class Example(Protocol):
    """A frozen dataclass: what is read (its sentences) and what is to be learnt, None where it is not known."""

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """What must be embedded; as many for every example of a task, unless its examples are documents."""
        ...


E = TypeVar("E", bound=Example)
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Batch(Generic[E]):
    """Some examples and their words.

    `words[k]` holds the k-th sentence of every example: one for tagging and classification, premise and hypothesis,
    passage and question. Where examples are documents, a batch is one example, and the rows of `words[0]` are its
    sentences.
    """

    examples: Sequence[E]
    words: tuple[WordBatch, ...]


class Network(nn.Module, ABC, Generic[E, P]):
    """Words to loss and predictions. Padding and neighbours in the batch must change nothing.

    `Config` is the dataclass that `__init__` takes: plain values (labels too) and `features`, a `WordFeaturesConfig`.
    """

    Config: ClassVar[type]
    config: Any
    features: WordFeatures

    @abstractmethod
    def loss(self, batch: Batch[E]) -> Tensor:
        """The mean over the examples, `features.penalty()` included; a scalar."""

    @abstractmethod
    def predict(self, batch: Batch[E]) -> list[P]:
        """One prediction per example, without gradients; the caller has set the network to evaluation."""

    @classmethod
    def from_plain(
        cls,
        values: Mapping[str, Any],
        *,
        source: str = "the network's configuration",
        error: type[ElmokitError] = ConfigError,
    ) -> "Network[E, P]":
        """The network whose `plain(network.config)` this was."""
        config: Any = revive(cls.Config, values, source=source, error=error)
        try:
            return cls(config)
        except ElmokitError as wrong:
            raise error(f"{source}: {wrong}") from None


class Task(ABC, Generic[E, P]):
    """One task. `settings` are its defaults, a frozen dataclass of `setting` fields: of the data and of the network.

    `quick` are changes to any settings (of the task, its features, its training), meant to train in about a quarter of
    an hour on two cores once layers are cached. `features` and `training` are changes to the general defaults.
    """

    name: str
    help: str  # one line
    network: type[Network[E, P]]
    settings: Any
    features: Mapping[str, Any] = {}
    training: Mapping[str, Any] = {}
    quick: Mapping[str, Any] = {}
    elmo_places: tuple[str, ...] = ("input", "output", "both")  # where its network takes an encoder's layers
    tables: tuple[str, ...] = ()  # endings of the tables and JSON files that `read_text` reads
    documents: bool = False  # an example is a document, its sentences the rows of a batch of its own
    pairs: bool = False  # `predict` takes two texts as a tuple
    unit: str = "sentences"  # what text without any example lacks

    @abstractmethod
    def read(self, path: str | Path, settings: Any) -> list[E]:
        """The examples of a labelled file; what is wrong in it is an `InputError` with file and line."""

    @abstractmethod
    def new_network(self, train: Sequence[E], features: WordFeaturesConfig, settings: Any) -> Network[E, P]:
        """An untrained network for what the training examples hold; its random numbers are torch's."""

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[P]) -> Scores:
        """How good the predictions are."""

    @abstractmethod
    def from_text(self, text: str, tokenizer: Tokenizer) -> list[E]:
        """The examples in running text, without labels; offsets of their sentences lead back into `text`."""

    def examples(self, given: Any, tokenizer: Tokenizer) -> list[E]:
        """The examples in one thing that `predict` was given: here, in a text."""
        if not isinstance(given, str):
            raise InputError(f"got {str(given)[:40]!r} ({type(given).__name__}); expected a text, or a list of texts")
        return self.from_text(given, tokenizer)

    def answer(self, predictions: list[P]) -> Any:
        """What `predict` returns for one thing: here, the list of its sentences' predictions."""
        return predictions

    @abstractmethod
    def show(self, example: E, prediction: P) -> Parts:
        """For people to read."""

    @abstractmethod
    def record(self, example: E, prediction: P) -> dict[str, Any]:
        """For JSON lines; places are character offsets into the text."""

    def size(self, example: E) -> int:
        """What examples are sorted by, so that those of a batch have like lengths."""
        return sum(map(len, example.sentences))

    def read_text(
        self,
        path: str | Path,
        settings: Any,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[E]:
        """The examples of a file without labels, one after the other; `report` is kept up to date.

        Here they are those of each line of text, or of each sentence of other formats. `field` is the JSON field or
        Parquet column of the text, where that is not the usual one.
        """
        for text in read_texts(path, tokenizer, field=field, report=report):
            yield from self.from_text(text, tokenizer)

    def conll(self, example: E, prediction: P) -> str:
        """The lines of one example in a CoNLL file, for tasks that have such."""
        raise InputError(f"task {self.name!r} writes no CoNLL files; choose a name that ends in .jsonl")

    def training_examples(self, path: str | Path, settings: Any) -> list[E]:
        """What is trained on, where that is more than what is scored (every phrase of a tree)."""
        return self.read(path, settings)

    def remarks(self, examples: Sequence[E], settings: Any) -> list[str]:
        """What should be known of data that was read: what was cut, left out or mended, in a line each."""
        return []

    def describe(self, network: Network[E, P]) -> dict[str, Any]:
        """What a saved model says of its network."""
        return plain(network.config)


def read_texts(
    path: str | Path, tokenizer: Tokenizer, *, field: str = "", report: ReadReport | None = None
) -> Iterator[str]:
    """The lines of a text file; of any other format that `elmokit embed` reads, the sentences."""
    if format_of(path) == "text":
        refuse_tables(path)
        yield from read_lines(path, report=report)
    else:
        sentences = read_sentences(path, tokenizer=tokenizer, field=field or "text", treebank=True, report=report)
        yield from (sentence.as_text for sentence in sentences)


def refuse_tables(path: str | Path) -> None:
    """A table or JSON file is no running text."""
    if suffix_of(path) in TABLES:
        raise InputError(
            f"{source_name(path)}: is named as a table or a JSON file, which this task does not read; give text, JSON "
            "lines (.jsonl), Parquet or CoNLL-U"
        )


def two_texts(given: Any) -> tuple[str, str]:
    """What `predict` was given, where that must be a tuple of two texts."""
    if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(text, str) for text in given):
        raise InputError(f"got {str(given)[:60]!r}; expected a tuple of two texts, or a list of such tuples")
    return given
