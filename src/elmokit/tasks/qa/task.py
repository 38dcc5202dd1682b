"""Question answering: the words of a passage that answer a question, by BiDAF with self-attention.

SQuAD 1.1 is the paper's use (Peters et al. 2018, section 4). Where a question has several gold answers, the network
learns to find any of them: the loss is the negative log of their starts' summed probability, and of their ends'
(Clark and Gardner 2018, section 3.2).
"""

import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.config import Count, Positive, setting
from elmokit.errors import InputError
from elmokit.formats import ReadReport, read_lines
from elmokit.formats.records import read_records, unit_of
from elmokit.formats.streams import source_name
from elmokit.tasks.classes import part_of
from elmokit.tasks.labelled import named_format
from elmokit.tasks.qa.data import Question, cut_passage, read_squad
from elmokit.tasks.qa.network import Bidaf, BidafConfig, Ends, best_spans
from elmokit.tasks.qa.scores import score_answers
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.task import Batch, Network, Parts, Scores, Task, two_texts
from elmokit.tasks.words import WordFeatures, WordFeaturesConfig
from elmokit.text import Tokenizer, load_tokenizer

PASSAGE_FIELDS = ("passage", "context")
TEXT_FORM = "the passage, a blank line, and below it one question a line"

_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, slots=True)
class QuestionSettings(BidafConfig):
    """Of the data, beside those of the network."""

    longest_answer: Positive = setting(17, "longest answer, in words")
    longest_passage: Count = setting(400, "longest passage, in words; the rest is cut off; 0: no limit")
    tokenizer: str = setting("english", "tokenizer of the texts: english, unicode or whitespace")


@dataclass(frozen=True, slots=True)
class Answer:
    """A piece of the passage; `start` and `end` are characters of its text, `words` the words it is made of."""

    text: str
    start: int
    end: int
    words: tuple[int, int]  # the end not included
    probability: float


@dataclass(frozen=True, slots=True)
class AnswererConfig:
    """The network and the longest answer it gives."""

    features: WordFeaturesConfig
    body: BidafConfig = field(default_factory=BidafConfig)
    longest_answer: Positive = 17


class AnswererNetwork(Network[Question, Answer]):
    """Word features, BiDAF, a span."""

    Config = AnswererConfig

    def __init__(self, config: AnswererConfig) -> None:
        super().__init__()
        self.config = config
        self.features = WordFeatures(config.features)
        self.body = Bidaf(config.body, width=self.features.width, output_width=self.features.output_width)

    def forward(self, batch: Batch[Question]) -> Ends:
        """Log probabilities of starts and ends. (B, T) each"""
        found: Ends = self.body(*map(self.features.side, batch.words))
        return found

    def loss(self, batch: Batch[Question]) -> Tensor:
        ends = self(batch)
        known = [k for k, example in enumerate(batch.examples) if example.spans]
        if not known:
            raise InputError("none of these questions has an answer within its passage; expected some to learn from")
        starts_there, ends_there = _marks(batch.examples, ends.start)
        start = _any_of(ends.start, starts_there)[known]  # (B,)
        end = _any_of(ends.end, ends_there)[known]  # (B,)
        return self.features.penalty() - (start + end).mean()

    @torch.no_grad()
    def predict(self, batch: Batch[Question]) -> list[Answer]:
        first, last, score = (found.tolist() for found in best_spans(self(batch), longest=self.config.longest_answer))
        return [
            answer_of(example, (first[k], last[k] + 1), math.exp(score[k])) for k, example in enumerate(batch.examples)
        ]


class QuestionAnswering(Task[Question, Answer]):
    """SQuAD 1.1's JSON."""

    name = "qa"
    help = "the words of a passage that answer a question: SQuAD 1.1's JSON (BiDAF with self-attention)"
    network = AnswererNetwork
    settings = QuestionSettings()
    features: Mapping[str, Any] = {"elmo_at": "both"}
    training: Mapping[str, Any] = {"batch_size": 45, "average": 0.999}
    pairs = True
    tables = (".json",)
    quick: Mapping[str, Any] = {"hidden": 50, "batch_size": 32, "max_train": 3000, "epochs": 5, "patience": 2}

    def read(self, path: str | Path, settings: QuestionSettings) -> list[Question]:
        return read_squad(path, tokenizer=load_tokenizer(settings.tokenizer), longest=settings.longest_passage or None)

    def training_examples(self, path: str | Path, settings: QuestionSettings) -> list[Question]:
        """The questions that still have an answer in what is left of their passage."""
        return [example for example in self.read(path, settings) if example.spans]

    def remarks(self, examples: Sequence[Question], settings: QuestionSettings) -> list[str]:
        """Which passages had to be cut, to be told to whoever trains or evaluates."""
        passages = {example.passage: example.cut for example in examples}
        cut = sum(map(bool, passages.values()))
        if not cut:
            return []
        lost = sum(example.answers is not None and not example.spans for example in examples)
        return [
            f"{cut:,} of {len(passages):,} passages were cut after {settings.longest_passage} words "
            f"(longest_passage); {lost:,} questions have no answer in what is left"
        ]

    def new_network(
        self, train: Sequence[Question], features: WordFeaturesConfig, settings: QuestionSettings
    ) -> AnswererNetwork:
        return AnswererNetwork(AnswererConfig(features, part_of(BidafConfig, settings), settings.longest_answer))

    def score(self, examples: Sequence[Question], predictions: Sequence[Answer]) -> Scores:
        scores = score_answers([example.answers or () for example in examples], [found.text for found in predictions])
        return {"F1": scores.f1, "exact match": scores.exact}

    def size(self, example: Question) -> int:
        """By the passage, which costs most, if there is a word in it."""
        return len(example.passage) and len(example.passage) + len(example.question)

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[Question]:
        """The passage, a blank line, and below it one question a line."""
        breaks = list(_BLANK_LINE.finditer(text.rstrip()))
        if not breaks:
            raise InputError(f"{text.strip()[:40]!r} has no questions; expected {TEXT_FORM}")
        passage = tokenizer.tokenize(text[: breaks[-1].start()])
        questions = text[breaks[-1].end() :].splitlines()
        return [Question(passage, tokenizer.tokenize(line)) for line in questions if line.strip()]

    def examples(self, given: Any, tokenizer: Tokenizer) -> list[Question]:
        """A tuple of passage and question."""
        return [question_of(*two_texts(given), tokenizer)]

    def answer(self, predictions: list[Answer]) -> Answer:
        return predictions[0]

    def read_text(
        self,
        path: str | Path,
        settings: QuestionSettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[Question]:
        """SQuAD's JSON with or without answers, JSON lines with passage and question, or text as in `from_text`."""
        longest = settings.longest_passage or None
        if field:
            raise InputError(f"{path}: questions have fields of their own, so {field!r} cannot be chosen; leave it out")
        if ".json" in Path(path).suffixes:
            yield from read_squad(path, tokenizer=tokenizer, longest=longest, labelled=False)
            return
        lines = read_lines(path, report=report)
        if named_format(path) == "jsonl":
            found = _read_records(lines, source_name(path), tokenizer)
        else:
            found = iter(self.from_text("\n".join(lines), tokenizer))
        yield from (_cut(example, longest) for example in found)

    def show(self, example: Question, prediction: Answer) -> Parts:
        question = example.question.as_text
        return [(f"{question}\n  ", ""), (prediction.text, "bold"), (f" {prediction.probability:.2f}", "")]

    def record(self, example: Question, prediction: Answer) -> dict[str, Any]:
        return {
            **({"id": example.id} if example.id else {}),
            "passage": example.passage.as_text,
            "question": example.question.as_text,
            "answer": prediction.text,
            "start": prediction.start,
            "end": prediction.end,
            "probability": prediction.probability,
        }


class QuestionAnswerer(TaskModel[tuple[str, str], Answer]):
    """A model of question answering.

    answerer = QuestionAnswerer.from_pretrained("model")
    answerer.predict(("Oil cost US$3 a barrel in 1973.", "What did oil cost?"))    # .text, .start, .end, .probability
    """

    task_class = "elmokit.tasks.qa.task:QuestionAnswering"

    def predict_questions(self, passage: str, questions: Iterable[str]) -> list[Answer]:
        """The old name of `predict` for several questions about one passage; removed in version 0.3."""
        warnings.warn(
            "predict_questions(passage, questions) is now predict([(passage, question), ...])",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.predict([(passage, question) for question in questions])


def question_of(passage: str, question: str, tokenizer: Tokenizer) -> Question:
    """A passage and a question without an answer."""
    return Question(tokenizer.tokenize(passage), tokenizer.tokenize(question))


def answer_of(example: Question, words: tuple[int, int], probability: float) -> Answer:
    """The words `words[0]` to `words[1]` (not included) of the passage; nothing where the passage has no words."""
    if not len(example.passage):
        return Answer("", 0, 0, (0, 0), 0.0)
    places = example.passage.places
    start, end = places[words[0]][0], places[words[1] - 1][1]
    begin = example.passage.start
    return Answer(example.passage.as_text[start - begin : end - begin], start, end, words, probability)


def _marks(examples: Sequence[Question], like: Tensor) -> tuple[Tensor, Tensor]:
    """Where gold answers start and end. (B, T) bool each"""
    starts, ends = torch.zeros(like.shape, dtype=torch.bool), torch.zeros(like.shape, dtype=torch.bool)
    for k, example in enumerate(examples):
        for a, b in example.spans:
            starts[k, a], ends[k, b - 1] = True, True
    return starts.to(like.device), ends.to(like.device)


def _any_of(log_probabilities: Tensor, there: Tensor) -> Tensor:
    """The log probability of any of the marked places. (B, T) to (B,)"""
    return torch.logsumexp(log_probabilities.masked_fill(~there, -1e4), dim=-1)


def _cut(example: Question, longest: int | None) -> Question:
    passage = cut_passage(example.passage, longest)
    return replace(example, passage=passage, cut=len(example.passage) - len(passage))


def _read_records(lines: Iterator[str], source: str, tokenizer: Tokenizer) -> Iterator[Question]:
    for record in read_records(lines, name=source, format="jsonl"):
        named = next((name for name in PASSAGE_FIELDS if name in record.fields), PASSAGE_FIELDS[0])
        passage, question = (unit_of(record.fields, name, record.place) for name in (named, "question"))
        if not isinstance(passage, str) or not isinstance(question, str):
            raise InputError(f"{record.place}: passage and question should be strings")
        yield question_of(passage, question, tokenizer)


QA = QuestionAnswering()
