"""Semantic roles: who did what to whom, one predicate at a time, by deep highway LSTMs (He et al. 2017).

A sentence is read once for each of its predicates, which an embedding of 0 and 1 marks. Eight LSTM layers of
alternating direction lead to a label for each word; labels are learnt independently of each other, and the best
sequence that IOB2 can write is found by Viterbi's algorithm. With ELMo at the input: Peters et al. 2018, section 4.

The network does not look for predicates. Text marks them by asterisks; in English text without any, they are the verbs
that the ready-made model `pos` finds.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.config import Depth, Share, Size, check, setting
from elmokit.errors import ElmokitWarning, InputError
from elmokit.formats import ReadReport, format_of
from elmokit.formats.streams import source_name
from elmokit.nn.crf import Allowed, Crf
from elmokit.nn.highway_lstm import HighwayLstm, HighwayLstmConfig
from elmokit.tasks.classes import part_of
from elmokit.tasks.labels import check_labels, legal_transitions, list_labels, read_spans
from elmokit.tasks.roles.data import Proposition, has_marks, read_marked, read_propositions, write_columns
from elmokit.tasks.roles.scores import PREDICATE, score_roles
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.tagging.network import TaggedSentence, TextSpan
from elmokit.tasks.tagging.task import Tagger, mark_spans
from elmokit.tasks.task import Batch, Network, Parts, Scores, Task, read_texts
from elmokit.tasks.words import WordFeatures, WordFeaturesConfig
from elmokit.text import Sentence, Tokenizer
from elmokit.weights.bundled import bundled_task

TEXTS = 256  # whose predicates are found at a time
MARKS = "put asterisks around each predicate: Mary *sold* her car"


@dataclass(frozen=True, slots=True)
class RolesBody:
    """The published network."""

    predicate_dim: Size = setting(100, "width of the embedding that marks the predicate")
    hidden: Size = setting(300, "LSTM cells of a layer")
    lstm_layers: Depth = setting(8, "number of LSTM layers, of alternating direction", was="layers")
    dropout: Share = setting(0.1, "dropout on the states of each LSTM, the same for all words of a sentence")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True)
class RoleSettings(RolesBody):
    """Of the data, beside those of the network."""

    predicate_column: int = setting(1, "column of the predicates in CoNLL-2005 files; 0 is the first, with the words")


@dataclass(frozen=True, slots=True)
class RolesConfig:
    """`labels` in the order of the network's outputs, in IOB2."""

    labels: tuple[str, ...]
    features: WordFeaturesConfig
    body: RolesBody = field(default_factory=RolesBody)

    def __post_init__(self) -> None:
        check_labels(self.labels)


@dataclass(frozen=True, slots=True)
class Roles:
    """One predicate with its arguments."""

    sentence: Sentence
    word: int  # the predicate's number among the words
    tags: tuple[str, ...]  # of all words, in IOB2

    @property
    def predicate(self) -> TextSpan:
        """The predicate's word, by characters of the text."""
        (a, b), start = self.sentence.places[self.word], self.sentence.start
        return TextSpan(a, b, PREDICATE, self.sentence.as_text[a - start : b - start])

    @property
    def arguments(self) -> list[TextSpan]:
        """Every labelled stretch but the predicate's own; C- continues the argument of that role before it."""
        spans = TaggedSentence(self.sentence, self.tags, "IOB2").spans
        return [span for span in spans if span.type != PREDICATE]


class RolesNetwork(Network[Proposition, Roles]):
    """Word features and the predicate's mark, highway LSTMs, a label a word."""

    Config = RolesConfig

    def __init__(self, config: RolesConfig) -> None:
        super().__init__()
        self.config = config
        body = config.body
        self.features = WordFeatures(config.features)
        self.mark = nn.Embedding(2, body.predicate_dim)
        width = self.features.width + body.predicate_dim
        self.lstm = HighwayLstm(HighwayLstmConfig(width, body.hidden, body.lstm_layers, body.dropout))
        self.output = nn.Linear(body.hidden + self.features.output_width, len(config.labels))
        # A CRF whose scores are and stay 0 knows nothing but which sequences of labels there are.
        self.viterbi = Crf(
            len(config.labels), allowed=Allowed(*map(torch.from_numpy, legal_transitions(config.labels, "IOB2")))
        ).requires_grad_(False)

    def forward(self, batch: Batch[Proposition]) -> Tensor:
        """Log probabilities of the labels at each word. (B, T, K)"""
        (words,) = batch.words
        marked = torch.zeros_like(words.ids)  # (B, T)
        marked[range(len(marked)), [example.predicate for example in batch.examples]] = 1
        read = torch.cat([self.features(words), self.mark(marked)], dim=-1)  # (B, T, D)
        hidden = self.lstm(read, words.mask)  # (B, T, H)
        hidden = torch.cat([hidden, self.features.at_output(words)], dim=-1)
        return torch.log_softmax(self.output(hidden), dim=-1)

    def loss(self, batch: Batch[Proposition]) -> Tensor:
        """The mean over predicates of -log p(labels)."""
        found: Tensor = self(batch)  # (B, T, K)
        gold = torch.full(found.shape[:2], -100)  # (B, T): nothing is learnt where it stays so
        numbers = {label: k for k, label in enumerate(self.config.labels)}
        for row, example in zip(gold, batch.examples, strict=True):
            if example.tags is None:
                raise InputError("a predicate without labels cannot be trained on")
            if unknown := [tag for tag in example.tags if tag not in numbers]:
                raise InputError(f"label {unknown[0]!r} is not among the network's: {', '.join(numbers)}")
            row[: len(example.tags)] = torch.tensor([numbers[tag] for tag in example.tags])
        lost = nn.functional.nll_loss(found.flatten(0, 1), gold.flatten().to(found.device), reduction="sum")
        return self.features.penalty() + lost / len(gold)

    @torch.no_grad()
    def predict(self, batch: Batch[Proposition]) -> list[Roles]:
        path, _ = self.viterbi.decode(self(batch), batch.words[0].mask)  # (B, T)
        found = []
        for example, row in zip(batch.examples, path.tolist(), strict=True):
            tags = tuple(self.config.labels[k] for k in row[: len(example.sentence)])
            found.append(Roles(example.sentence, example.predicate, tags))
        return found


class SemanticRoles(Task[Proposition, Roles]):
    """JSON lines of frames, CoNLL-2005 and CoNLL-2012 columns; see `roles_data`."""

    name = "roles"
    unit = "predicates"
    help = "semantic roles of given predicates: JSONL of frames, CoNLL-2005/2012 columns (highway LSTMs)"
    network = RolesNetwork
    settings = RoleSettings()
    training: Mapping[str, Any] = {"batch_size": 80}
    quick: Mapping[str, Any] = {"hidden": 100, "batch_size": 40, "max_train": 12000, "epochs": 8, "patience": 3}

    def read(self, path: str | Path, settings: RoleSettings) -> list[Proposition]:
        return list(read_propositions(path, predicate_column=settings.predicate_column))

    def new_network(
        self, train: Sequence[Proposition], features: WordFeaturesConfig, settings: RoleSettings
    ) -> RolesNetwork:
        types = {span.type for example in train for span in read_spans(example.tags or ())}
        return RolesNetwork(RolesConfig(list_labels(types, "IOB2"), features, part_of(RolesBody, settings)))

    def score(self, examples: Sequence[Proposition], predictions: Sequence[Roles]) -> Scores:
        """The CoNLL-2005 scorer's; `perfect` is the share of predicates without any error.

        Roles are listed if a hundredth of the arguments or more have them; `score_roles` counts them all.
        """
        gold = [example.tags or () for example in examples]
        scores = score_roles(gold, [prediction.tags for prediction in predictions])
        overall = scores.overall
        return {
            "F1": overall.f1,
            "precision": overall.precision,
            "recall": overall.recall,
            "perfect": scores.perfect / max(scores.propositions, 1),
            **{f"F1 {role}": counts.f1 for role, counts in scores.roles.items() if counts.gold >= overall.gold / 100},
        }

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[Proposition]:
        """The predicates between asterisks, or the verbs; offsets are those of the text with its asterisks."""
        return read_marked(text, tokenizer) or find_verbs([text], tokenizer)

    def read_text(
        self,
        path: str | Path,
        settings: RoleSettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[Proposition]:
        """JSON lines and columns by their names, labelled or not; of any other file its lines, as `from_text`.

        With `field`, JSON lines hold running text there. Where no line of the file marks a predicate, the verbs of all
        are taken.
        """
        if format_of(path) == "columns" or (format_of(path) == "jsonl" and not field):
            column = settings.predicate_column
            yield from read_propositions(path, predicate_column=column, labelled=False, report=report)
            return
        if Path(path).is_file():  # read twice, not held
            marked = _count_marked(read_texts(path, tokenizer, field=field), source_name(path))
            texts = read_texts(path, tokenizer, field=field, report=report)
        else:
            held = list(read_texts(path, tokenizer, field=field, report=report))
            marked = _count_marked(held, source_name(path))
            texts = iter(held)
        while some := list(islice(texts, TEXTS)):
            if marked:
                yield from (example for text in some for example in read_marked(text, tokenizer))
            else:
                yield from find_verbs(some, tokenizer)

    def show(self, example: Proposition, prediction: Roles) -> Parts:
        spans = TaggedSentence(example.sentence, prediction.tags, "IOB2").spans
        colours = {span.type: "yellow" if span.type == PREDICATE else "cyan" for span in spans}
        return [(prediction.predicate.text, "bold"), (": ", ""), *mark_spans(example.sentence, spans, colours)]

    def record(self, example: Proposition, prediction: Roles) -> dict[str, Any]:
        def place(span: TextSpan) -> dict[str, Any]:
            return {"text": span.text, "start": span.start, "end": span.end}

        return {
            "text": example.sentence.as_text,
            "start": example.sentence.start,
            "predicate": {**place(prediction.predicate), "word": prediction.word},
            "arguments": [{"role": span.type, **place(span)} for span in prediction.arguments],
            "words": list(example.sentence.tokens),
            "tags": list(prediction.tags),
        }

    def conll(self, example: Proposition, prediction: Roles) -> str:
        """CoNLL-2005 columns, the sentence once for each predicate."""
        return write_columns(example, prediction.tags)


class RoleLabeller(TaskModel[str, list[Roles]]):
    """A model of semantic roles. `predict` takes text whose predicates stand between asterisks; without any, the verbs.

    labeller = RoleLabeller.from_pretrained("model")
    labeller.predict("Mary *sold* her car and *left*.")        # a list: .predicate and .arguments of each
    """

    task_class = "elmokit.tasks.roles.task:SemanticRoles"

    def predict_words(self, words: Sequence[str], predicates: Iterable[int]) -> list[Roles]:
        """The roles of a sentence given as words, for the predicates with these numbers; the first word is 0."""
        return self.predict_examples([proposition_of(words, predicate) for predicate in predicates])


def find_verbs(texts: Sequence[str], tokenizer: Tokenizer) -> list[Proposition]:
    """The verbs of English texts, each with its sentence; an error if the text is not cut as by the model `pos`."""
    given = next((text.strip() for text in texts if text.strip()), "")
    if not given:
        return []
    if bundled_task("pos") is None or tokenizer.name != "english":
        raise InputError(f"no predicate is marked in {given[:40]!r}; {MARKS}")
    tagged = _verb_finder().predict(list(texts))
    return [
        Proposition(answer.sentence, k)
        for answers in tagged
        for answer in answers
        for k, tag in enumerate(answer.tags)
        if tag == "VERB"
    ]


def _count_marked(texts: Iterable[str], source: str) -> int:
    """How many texts mark predicates; a warning where some do and others do not."""
    marked = plain = 0
    for text in texts:
        if has_marks(text):
            marked += 1
        elif text.strip():
            plain += 1
    if marked and plain:
        warnings.warn(
            f"{source}: predicates are marked by asterisks in {marked:,} of {marked + plain:,} lines, so the verbs of "
            "the others are not taken; without any such marks all verbs are",
            ElmokitWarning,
            stacklevel=2,
        )
    return marked


@cache
def _verb_finder() -> Tagger:
    ready = bundled_task("pos")
    assert ready is not None  # it was looked for before
    return Tagger.from_pretrained(ready)  # whatever is called pos in the working directory


def proposition_of(words: Sequence[str], predicate: int) -> Proposition:
    """A sentence given as words and the number of its predicate, without labels."""
    if isinstance(words, str) or not words:
        raise InputError(f"got {words!r} for the words of a sentence; expected a list of one or more")
    sentence = Sentence.of(words)
    if not 0 <= predicate < len(sentence):
        raise InputError(f"predicate {predicate} of {len(sentence)} words; expected 0 to {len(sentence) - 1}")
    return Proposition(sentence, predicate)


ROLES = SemanticRoles()
