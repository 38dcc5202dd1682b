"""Words with a label each, for probes: columns of CoNLL-U and column files, and a control task's random labels."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import FormatError, InputError
from elmokit.formats import read_columns, read_conllu, read_lines
from elmokit.formats.streams import source_name
from elmokit.tasks.labels import check_given, split_tag
from elmokit.text import Sentence, unescape_treebank

CONLLU = {"upos": 3, "xpos": 4, "deprel": 7}
KINDS = "upos, xpos or deprel of CoNLL-U; column, type, column:N or type:N of a column file (N from 1, or -1 the last)"


@dataclass(frozen=True, slots=True)
class WordLabels:
    """Sentences, and for each of them a label for each word."""

    sentences: tuple[Sentence, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> list[str]:
        return [token for sentence in self.sentences for token in sentence.tokens]

    @property
    def flat(self) -> list[str]:
        return [label for labels in self.labels for label in labels]

    def some(self, most: int) -> "WordLabels":
        """At most so many sentences, evenly spaced; 0: all."""
        total = len(self.sentences)
        if not 0 < most < total:
            return self
        picked = [k * total // most for k in range(most)]
        return WordLabels(tuple(self.sentences[k] for k in picked), tuple(self.labels[k] for k in picked))


def read_word_labels(source: str | Path, label: str) -> WordLabels:
    """A labelled text. `label` says which labels, and with that the format.

    upos, xpos, deprel    CoNLL-U's columns
    column, column:N      a column file's last or N-th column as it is (chunks: B-NP, I-NP)
    type, type:N          the same without B- and I- (entities: PER, LOC ... and O)
    """
    name = source_name(source)
    if label in CONLLU:
        parsed = list(read_conllu(read_lines(source), name=name))
        sentences = tuple(p.sentence for p in parsed)
        labels = tuple(tuple(row[CONLLU[label]] for row in p.rows) for p in parsed)
    else:
        kind, place = _column(label)
        blocks = list(read_columns(read_lines(source), name=name))
        width = len(blocks[0].rows[0]) if blocks else 0
        if blocks and not (1 < place <= width or -width < place < 0):
            raise InputError(f"{name}: has {width} columns, the first of them words; {label!r} asks for column {place}")
        at = place - 1 if place > 0 else place
        sentences = tuple(Sentence.of(map(unescape_treebank, block.column(0))) for block in blocks)
        labels = tuple(block.column(at) for block in blocks)
        if kind == "type":
            labels = tuple(tuple(_type(tag, name) for tag in tags) for tags in labels)
    if not any(map(len, labels)):
        raise FormatError(f"{name}: holds no labelled words; expected {KINDS}")
    check_given((tag for tags in labels for tag in tags), label, name)
    return WordLabels(sentences, labels)


def control_labels(words: Sequence[str], counts: Counter[str], *, seed: int = 0) -> list[str]:
    """A random label for each word type, the same in all places: only a probe that memorises can know it.

    Hewitt and Liang 2019. Labels are drawn as often as in `counts`, so that the control task has as many labels as the
    task, and as uneven ones. A word's label depends on the word, the labels and the seed alone: not on the text.
    """
    names = sorted(counts)
    edges = np.cumsum([counts[name] for name in names]) / max(counts.total(), 1)
    drawn: dict[str, str] = {}
    for word in words:
        if word not in drawn:
            digest = hashlib.blake2b(f"{seed}\0{word}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
            share = int.from_bytes(digest, "big") / 2**64  # from 0 to 1
            drawn[word] = names[min(int(np.searchsorted(edges, share, side="right")), len(names) - 1)]
    return [drawn[word] for word in words]


def label_ids(labels: Iterable[str], names: Sequence[str]) -> NDArray[np.int64]:
    """The number of each label; -1, which no probe answers, for those that are not among the names."""
    places = {name: k for k, name in enumerate(names)}
    return np.array([places.get(label, -1) for label in labels], dtype=np.int64)


def _column(label: str) -> tuple[str, int]:
    kind, colon, number = label.partition(":")
    if kind not in ("column", "type") or (colon and not number.lstrip("-").isdecimal()):
        raise InputError(f"label {label!r} not understood; expected {KINDS}")
    return kind, int(number) if colon else -1


def _type(tag: str, name: str) -> str:
    try:
        prefix, type = split_tag(tag)
    except InputError as error:
        raise FormatError(f"{name}: {error}") from None
    return type or prefix
