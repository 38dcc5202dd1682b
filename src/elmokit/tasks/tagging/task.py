"""Sequence tagging: named entities, chunks, parts of speech, and any other column of CoNLL and CoNLL-U files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.config import Depth, Share, Size, setting
from elmokit.errors import FormatError, InputError
from elmokit.formats import ReadReport, format_of, read_columns, read_conllu, read_lines, read_sentences
from elmokit.formats.streams import source_name
from elmokit.tasks.labels import (
    Scheme,
    check_given,
    convert_tags,
    label_accuracy,
    list_labels,
    read_spans,
    score_spans,
)
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.tagging.forms import recase, recut
from elmokit.tasks.tagging.network import (
    CrfTagger,
    TaggedExample,
    TaggedSentence,
    TaggerConfig,
    TaggerNetwork,
    TaglmNetwork,
    TextSpan,
)
from elmokit.tasks.task import Parts, Scores, Task
from elmokit.tasks.words import WordFeaturesConfig
from elmokit.text import Sentence, Tokenizer, load_tokenizer, unescape_treebank

CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
SPAN_LABEL = re.compile(r"O|[BIES](-.*)?")
COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")  # of types, in the order they are met

Labels = Literal["auto", "spans", "words"]


def _addition(default: Any, help: str) -> Any:
    """What is trained on besides the file; no model that is begun with says it."""
    return setting(default, help, part="examples", later=True)


@dataclass(frozen=True, slots=True)
class TaggingSettings:
    """Of the data, and of the network."""

    column: str = setting("-1", "column of the labels: a number (0 the first, -1 the last) or a name of CoNLL-U's")
    format: Literal["auto", "columns", "conllu"] = setting(
        "auto", "format of the files; auto: conllu by file name, else columns"
    )
    labels: Labels = setting("auto", "what is labelled: spans (IOB1, IOB2, IOBES) or words; auto: as the labels look")
    scheme: Scheme = setting("IOBES", "scheme of the labels inside the network, whatever the files have")
    recut: str = _addition(
        "", "tokenizer, such as english: sentences with words that it cuts are trained on cut so, too"
    )
    recase: Share = _addition(
        0.0, "share of the sentences that are trained on in lower case or in capitals, too, half each"
    )
    hidden: Size = setting(200, "LSTM cells in each direction")
    lstm_layers: Depth = setting(2, "number of LSTM layers", was="layers")
    dropout: Share = setting(0.25, "dropout on the input of each LSTM and on the output")


class Tagging(Task[TaggedExample, TaggedSentence]):
    """Labels of words or spans; each use of it is an instance with its own name and defaults."""

    network: type[CrfTagger] = TaggerNetwork

    def __init__(self, name: str, help: str, settings: TaggingSettings, **changes: Any) -> None:
        self.name, self.help, self.settings = name, help, settings
        self.features = {"elmo_l2": 0.1, **changes}
        self.training = {"clip_norm": 5.0}
        self.quick = {"hidden": 150, "layers": 1, "epochs": 12, "patience": 3, "batch_size": 32}

    def read(self, path: str | Path, settings: TaggingSettings) -> list[TaggedExample]:
        blocks = list(_blocks(path, settings))
        check_given((tag for _, tags, _ in blocks for tag in tags), settings.column, source_name(path))
        labels = settings.labels
        if labels == "auto":
            spans = all(SPAN_LABEL.fullmatch(tag) for _, tags, _ in blocks for tag in tags)
            labels = "spans" if spans else "words"
        scheme = settings.scheme if labels == "spans" else None
        examples = []
        for sentence, tags, line in blocks:
            if scheme is not None:
                _check_spans(tags, source_name(path), line)
                tags = tuple(convert_tags(tags, scheme))
            examples.append(TaggedExample(sentence, tags, scheme))
        return examples

    def training_examples(self, path: str | Path, settings: TaggingSettings) -> list[TaggedExample]:
        """Those of the file; then those in other forms, as `recut` and `recase` say."""
        examples = self.read(path, settings)
        if settings.recut:
            examples += list(recut(examples, load_tokenizer(settings.recut)))
        return examples + list(recase(examples, settings.recase))

    def new_network(
        self, train: Sequence[TaggedExample], features: WordFeaturesConfig, settings: TaggingSettings
    ) -> CrfTagger:
        scheme = train[0].scheme
        tags = [example.tags or () for example in train]
        if scheme is None:
            labels = tuple(sorted({tag for row in tags for tag in row}))
        else:
            labels = list_labels({span.type for row in tags for span in read_spans(row)}, scheme)
        return self.network(
            TaggerConfig(labels, features, scheme, settings.hidden, settings.lstm_layers, settings.dropout)
        )

    def score(self, examples: Sequence[TaggedExample], predictions: Sequence[TaggedSentence]) -> Scores:
        """F1 of spans, all and by type; or the share of words with the right label."""
        gold = [example.tags or () for example in examples]
        found = [prediction.tags for prediction in predictions]
        if not any(prediction.scheme for prediction in predictions):
            return {"accuracy": label_accuracy(gold, found)}
        if any(example.scheme is None for example in examples):
            raise InputError("a tagger of spans cannot be scored on labels of words; choose another column")
        scores = score_spans(gold, found)
        overall = scores.overall
        all_types = {"F1": overall.f1, "precision": overall.precision, "recall": overall.recall}
        by_type = {f"F1 {type}": counts.f1 for type, counts in scores.types.items()}
        return {**all_types, "accuracy": scores.accuracy, **by_type}

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[TaggedExample]:
        return [TaggedExample(sentence) for sentence in tokenizer.split(text)]

    def read_text(
        self,
        path: str | Path,
        settings: TaggingSettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[TaggedExample]:
        if format_of(path) == "text":
            return super().read_text(path, settings, tokenizer, report=report)
        sentences = read_sentences(
            path, tokenizer=tokenizer, field=field or "text", lines="paragraphs", treebank=True, report=report
        )
        return map(TaggedExample, sentences)

    def show(self, example: TaggedExample, prediction: TaggedSentence) -> Parts:
        """Spans stand in brackets with their types, words with their labels behind a slash."""
        if prediction.scheme is None:
            words = zip(example.sentence.tokens, prediction.tags, strict=True)
            parts = [part for word, tag in words for part in ((f" {word}", ""), (f"/{tag}", "dim"))]
            return [(text[1:] if k == 0 else text, style) for k, (text, style) in enumerate(parts)]
        colours: dict[str, str] = {}
        for span in prediction.spans:
            colours.setdefault(span.type, COLOURS[len(colours) % len(COLOURS)])
        return mark_spans(example.sentence, prediction.spans, colours)

    def record(self, example: TaggedExample, prediction: TaggedSentence) -> dict[str, Any]:
        """Offsets count from the beginning of the text given; `start` is where this sentence's text begins in it."""
        places = example.sentence.places
        words = zip(example.sentence.tokens, prediction.tags, places, strict=True)
        record: dict[str, Any] = {"text": example.sentence.as_text, "start": example.sentence.start}
        record["words"] = [{"text": word, "tag": tag, "start": a, "end": b} for word, tag, (a, b) in words]
        if prediction.scheme is not None:
            record["spans"] = [
                {"text": span.text, "type": span.type, "start": span.start, "end": span.end}
                for span in prediction.spans
            ]
        return record

    def conll(self, example: TaggedExample, prediction: TaggedSentence) -> str:
        """Word, tab, label; spans in IOB2, as most tools read them."""
        tags = prediction.tags if prediction.scheme is None else convert_tags(prediction.tags, "IOB2")
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(example.sentence.tokens, tags, strict=True)) + "\n"


def mark_spans(sentence: Sentence, spans: Iterable[TextSpan], colours: Mapping[str, str]) -> Parts:
    """A sentence whose spans stand in brackets, their types first: where each begins is seen without colours, too."""
    text, start = sentence.as_text, sentence.start
    shown: Parts = []
    at = 0
    for span in spans:
        colour = colours[span.type]
        shown += [(text[at : span.start - start], ""), (f"[{span.type}", colour), (" ", "")]
        shown += [(span.text, f"bold {colour}"), ("]", colour)]
        at = span.end - start
    return [*shown, (text[at:], "")]


class Tagger(TaskModel[str, list[TaggedSentence]]):
    """A model of sequence tagging.

    Tagger.from_pretrained("model").predict("Jane lives in Paris.")     # a list of sentences: .tags and .spans of each
    """

    task_class = "elmokit.tasks.tagging.task:Tagging"


class Taglm(Tagging):
    """The same data for the forerunner's network."""

    network = TaglmNetwork
    elmo_places = ("output",)

    def __init__(self, name: str, help: str, settings: TaggingSettings) -> None:
        super().__init__(name, help, settings, elmo_at="output", elmo_layers="top")
        self.quick = {**self.quick, "layers": 2, "hidden": 100}


def _blocks(path: str | Path, settings: TaggingSettings) -> Iterator[tuple[Sentence, tuple[str, ...], int]]:
    """Sentences, their labels and the line of the first word (in CoNLL-U, of what comes after the comments)."""
    name, lines = source_name(path), read_lines(path)
    conllu = settings.format == "conllu" or (settings.format == "auto" and format_of(path) == "conllu")
    if conllu:
        column = _column(settings.column, CONLLU_COLUMNS, name)
        for parsed in read_conllu(lines, name=name):
            first = parsed.line + len(parsed.comments)
            yield parsed.sentence, tuple(row[column] for row in parsed.rows), first
        return
    for block in read_columns(lines, name=name):
        column = _column(settings.column, (), name)
        width = len(block.rows[0])
        if not -width <= column < width or column % width == 0:
            raise FormatError(
                f"{name}, line {block.line}: has {width} columns, the first of them words; no labels in column {column}"
            )
        yield Sentence.of(map(unescape_treebank, block.column(0))), block.column(column), block.line


def _column(column: str, names: tuple[str, ...], file: str) -> int:
    if re.fullmatch(r"-?\d+", column):
        return int(column)
    if column.lower() in names:
        return names.index(column.lower())
    expected = f"a number or one of {', '.join(names)}" if names else "a number: 0 the first, -1 the last"
    raise InputError(f"{file}: no column {column!r}; expected {expected}")


def _check_spans(tags: tuple[str, ...], file: str, line: int) -> None:
    for k, tag in enumerate(tags):
        if not SPAN_LABEL.fullmatch(tag):
            raise FormatError(
                f"{file}, line {line + k}: label {tag!r} of a span; expected O, or B-, I-, E- or S- and a type. For "
                "labels of words, say labels = words"
            )


NER = Tagging("ner", "named entities, labels in the last column", TaggingSettings(labels="spans"))
CHUNK = Tagging("chunk", "chunks, labels in the last column", TaggingSettings(labels="spans"))
POS = Tagging("pos", "parts of speech of CoNLL-U", TaggingSettings(column="upos", labels="words"))
TAG = Tagging("tag", "any column of labels, of words or of spans", TaggingSettings())
TAGLM = Taglm("taglm", "TagLM, the forerunner of ELMo, on any column of labels", TaggingSettings())
