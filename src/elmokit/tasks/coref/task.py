"""Coreference: which mentions in a document mean the same person or thing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.config import Depth, Positive, Rate, Share, Size, plain, setting
from elmokit.formats import ReadReport, format_of, read_jsonl, read_lines, read_parquet, read_sentences
from elmokit.formats.read import sentence_of
from elmokit.formats.streams import source_name
from elmokit.tasks.coref.data import read_coref, write_coref
from elmokit.tasks.coref.document import CorefDocument, Resolved, place_sentences
from elmokit.tasks.coref.network import CorefConfig, CorefNetwork
from elmokit.tasks.coref.scores import score_clusters
from elmokit.tasks.saved import TaskModel
from elmokit.tasks.task import Parts, Scores, Task, refuse_tables
from elmokit.tasks.words import WordFeaturesConfig
from elmokit.text import Tokenizer, load_tokenizer

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")  # of clusters, in turn

LEAST_KEPT = 8  # spans: two short sentences have more mentions than 0.4 per word


@dataclass(frozen=True, slots=True)
class CorefSettings:
    """Of the data, and of the network."""

    splitter: str = setting("english", "tokenizer that splits files without sentence breaks into sentences")
    hidden: Size = setting(200, "LSTM cells in each direction")
    lstm_layers: Depth = setting(1, "number of LSTM layers", was="layers")
    scorer: Size = setting(150, "units in each of the two hidden layers of the scorers")
    feature_dim: Size = setting(20, "width of the vectors of span widths, distances, speakers and genres")
    max_width: Size = setting(10, "longest span, in words")
    kept: Rate = setting(0.4, "spans per word that survive pruning")
    antecedents: Positive = setting(250, "number of earlier spans that a span is compared with, the nearest")
    dropout: Share = setting(0.2, "dropout on the LSTM's output and in the scorers")
    train_sentences: Positive = setting(50, "sentences of a document in one step of training; longer documents are cut")


class Coreference(Task[CorefDocument, Resolved]):
    """Clusters of mentions. Documents of CoNLL-2012, or of three columns: word number, word, bracketed clusters."""

    name = "coref"
    help = "coreference by ranking spans"
    network = CorefNetwork
    settings = CorefSettings()
    features: Mapping[str, Any] = {
        "elmo_l2": 0.0,
        "char_dim": 8,
        "char_filters": ((3, 50), (4, 50), (5, 50)),
        "feature_dropout": 0.5,
    }
    # Nothing is linked at first, while it learns what a mention is: epochs without a score are no reason to stop.
    training: Mapping[str, Any] = {"epochs": 60, "patience": 15, "decay": 0.9}
    quick: Mapping[str, Any] = {
        "hidden": 100,
        "scorer": 75,
        "antecedents": 50,
        "train_sentences": 15,
        "word_dim": 50,
        "char_filters": ((3, 50),),
        "epochs": 12,
    }
    documents = True

    def read(self, path: str | Path, settings: CorefSettings) -> list[CorefDocument]:
        return read_coref(path, splitter=load_tokenizer(settings.splitter))

    def remarks(self, examples: Sequence[CorefDocument], settings: CorefSettings) -> list[str]:
        """What was left out of the data, and what of it cannot be learnt as it is."""
        notes = [note for document in examples for note in document.notes]
        long = sum(len(document.sentences) > settings.train_sentences for document in examples)
        if long:
            notes.append(
                f"{long} of {len(examples)} documents have more than {settings.train_sentences} sentences: in training "
                "they are cut to so many in a row, each time others; predictions read all"
            )
        mentions = [(d, mention) for d in examples for cluster in d.clusters or () for mention in cluster]
        lost = sum(
            mention.end - mention.start > settings.max_width
            or any(mention.start < start < mention.end for start in document.starts)
            for document, mention in mentions
        )
        if lost:
            notes.append(
                f"{lost} of {len(mentions)} mentions cannot be found: longer than {settings.max_width} words, or "
                "across the end of a sentence"
            )
        return notes

    def new_network(
        self, train: Sequence[CorefDocument], features: WordFeaturesConfig, settings: CorefSettings
    ) -> CorefNetwork:
        genres = tuple(sorted({document.genre for document in train if document.genre is not None}))
        speakers = any(document.speakers is not None for document in train)
        own = plain(settings)
        del own["splitter"]
        return CorefNetwork(CorefConfig(features, genres, speakers, least_kept=LEAST_KEPT, **own))

    def score(self, examples: Sequence[CorefDocument], predictions: Sequence[Resolved]) -> Scores:
        """The mean F1 of MUC, B-cubed and CEAF-phi4, and each of them; and of mentions, right or wrong in cluster."""
        pairs = zip(examples, predictions, strict=True)
        scores = score_clusters((document.clusters or (), found.words) for document, found in pairs)
        named: Scores = {"average F1": scores.average}
        measures = {"MUC": scores.muc, "B3": scores.b_cubed, "CEAF": scores.ceaf, "mention": scores.mentions}
        for name, ratios in measures.items():
            parts = {"F1": ratios.f1, "precision": ratios.precision, "recall": ratios.recall}
            named |= {f"{name} {part}": value for part, value in parts.items()}
        return named

    def from_text(self, text: str, tokenizer: Tokenizer) -> list[CorefDocument]:
        """One document; none of blank text."""
        sentences = tuple(tokenizer.split(text))
        if any(sentence.offsets is None for sentence in sentences):
            sentences = place_sentences(sentence.tokens for sentence in sentences)
        return [CorefDocument("text", sentences)] if sentences else []

    def examples(self, given: Any, tokenizer: Tokenizer) -> list[CorefDocument]:
        """One document, also of blank text."""
        return super().examples(given, tokenizer) or [CorefDocument("text", ())]

    def answer(self, predictions: list[Resolved]) -> Resolved:
        return predictions[0]

    def read_text(
        self,
        path: str | Path,
        settings: CorefSettings,
        tokenizer: Tokenizer,
        *,
        field: str = "",
        report: ReadReport | None = None,
    ) -> Iterator[CorefDocument]:
        """A text file is one document, a text of JSON lines or Parquet another each; columns without clusters."""
        match format_of(path):
            case "columns":
                yield from self.read(path, settings)
            case "jsonl" | "parquet" as format:
                if format == "jsonl":
                    units = read_jsonl(read_lines(path, report=report), name=source_name(path), field=field or "text")
                else:
                    units = read_parquet(path, field=field or "text", report=report)
                for unit in units:
                    if isinstance(unit, str):
                        yield from self.from_text(unit, tokenizer)
                    else:
                        yield CorefDocument("text", place_sentences([sentence_of(unit, tokenizer).tokens]))
            case "conllu":
                sentences = read_sentences(path, tokenizer=tokenizer, treebank=True, report=report)
                yield CorefDocument("text", place_sentences([sentence.tokens for sentence in sentences]))
            case _:
                refuse_tables(path)
                yield from self.from_text("\n".join(read_lines(path, report=report)), tokenizer)

    def show(self, example: CorefDocument, prediction: Resolved) -> Parts:
        """The text with its mentions in brackets, each with the number of its cluster; then the clusters."""
        lines = [*_bracketed(example, prediction), *([[]] if prediction.clusters else [])]
        for number, cluster in enumerate(prediction.clusters, 1):
            mentions = "; ".join(" ".join(mention.text.split()) for mention in cluster)
            lines.append([(f"{number:3}  ", _colour(number)), (mentions, "")])
        shown = [part for line in lines for part in (*line, ("\n", ""))]
        return shown[:-1]

    def record(self, example: CorefDocument, prediction: Resolved) -> dict[str, Any]:
        """`start` and `end` count characters of the text; of a column file, of its words with spaces between."""
        return {
            "document": example.name,
            "part": example.part,
            "sentences": [{"text": sentence.as_text, "start": sentence.start} for sentence in example.sentences],
            "clusters": [
                [
                    {"text": mention.text, "start": mention.start, "end": mention.end, "words": list(mention.words)}
                    for mention in cluster
                ]
                for cluster in prediction.clusters
            ],
        }

    def conll(self, example: CorefDocument, prediction: Resolved) -> str:
        return "".join(f"{line}\n" for line in write_coref([(example, prediction.words)])) + "\n"


class CoreferenceResolver(TaskModel[str, Resolved]):
    """A model of coreference.

    resolver = CoreferenceResolver.from_pretrained("model")
    found = resolver.predict("Ann saw her dog. It barked.")
    found.clusters[0][1].text, found.clusters[0][1].start      # 'her', 8
    """

    task_class = "elmokit.tasks.coref.task:Coreference"


def _bracketed(document: CorefDocument, found: Resolved) -> Iterator[Parts]:
    """Line by line: [1 Ann] saw [2 [1 her] dog] ."""
    begins: dict[int, list[tuple[int, int]]] = {}  # by character: end and number
    ends: dict[int, list[tuple[int, int]]] = {}  # by character: start and number
    for number, cluster in enumerate(found.clusters, 1):
        for mention in cluster:
            begins.setdefault(mention.start, []).append((-mention.end, number))
            ends.setdefault(mention.end, []).append((-mention.start, number))
    for sentence in document.sentences:
        line: Parts = []
        at, text = 0, sentence.text or ""
        for a, b in sentence.offsets or ():
            line.append((text[at:a].replace("\n", " "), ""))
            line += [(f"[{number} ", _colour(number)) for _, number in sorted(begins.get(sentence.start + a, ()))]
            line.append((text[a:b], ""))
            line += [("]", _colour(number)) for _, number in sorted(ends.get(sentence.start + b, ()))]
            at = b
        yield [*line, (text[at:], "")]


def _colour(number: int) -> str:
    return f"bold {COLOURS[(number - 1) % len(COLOURS)]}"


COREF = Coreference()
