"""Documents with coreference columns, read and written.

CoNLL-2012 has twelve columns or more: document, part, word number, word, part of speech, parse, lemma, frameset, sense,
speaker, entity, roles ..., coreference. The bracketed format has three: word number, word, coreference. Both stand
between `#begin document (NAME); part N` and `#end document`; a blank line ends a sentence, and a document that has none
is split by a tokenizer. In the last column `(3` begins a mention of cluster 3, `3)` ends one, `(3)` is one of a single
word; `|` may stand between them, and `-` or `_` is nothing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from elmokit.errors import FormatError
from elmokit.formats import read_lines
from elmokit.formats.streams import source_name
from elmokit.tasks.coref.document import Cluster, CorefDocument, Mention, order_clusters, place_sentences, split_tokens
from elmokit.text import Tokenizer, load_tokenizer, unescape_treebank

_BEGIN = re.compile(r"#\s*begin document\s+\(?(?P<name>[^();]+)\)?(?:;\s*part\s+(?P<part>\S+))?\s*")
_END = re.compile(r"#\s*end document\b.*")
_PIECE = re.compile(r"\((?P<one>\w+)\)|\((?P<begins>\w+)|(?P<ends>\w+)\)|\|")
_NOTHING = ("-", "_", "*")
_SLASHED = re.compile(r"/[.?!-]")  # how OntoNotes writes marks of spoken text
_LOST = "\ufffd"
BRACKETED, CONLL_2012 = 3, 12  # columns, the latter at least
_NUMBER, _WORD, _SPEAKER = 2, 3, 9  # columns of CoNLL-2012


def read_coref(source: str | Path, *, splitter: Tokenizer | None = None) -> list[CorefDocument]:
    """The documents of a file. `splitter` ends sentences where the file does not: the English tokenizer if not given.

    Lines that are not what the format promises are errors. Published files have brackets without their partner and
    rows without their word; the first costs its mention alone, and both stand in the document's notes.
    """
    splitter = splitter or load_tokenizer("english")
    return list(parse_coref(read_lines(source), name=source_name(source), splitter=splitter))


def parse_coref(lines: Iterable[str], *, name: str, splitter: Tokenizer) -> Iterator[CorefDocument]:
    """The documents of these lines; `name` is the file's, for errors."""
    draft: _Draft | None = None
    for number, line in enumerate(lines, 1):
        if begin := _BEGIN.fullmatch(line):
            if draft is not None:
                _refuse(name, number, line, f"'#end document' before this one, for the document of line {draft.line}")
            draft = _Draft(name, number, begin["name"].strip(), begin["part"] or "0")
        elif _END.fullmatch(line):
            if draft is None:
                _refuse(name, number, line, "a '#begin document (NAME); part N' before it")
            yield draft.document(splitter)
            draft = None
        elif not line or line.isspace():
            if draft is not None:
                draft.end_sentence()
        elif draft is not None:
            draft.add(number, line)
        elif not line.startswith("#"):
            _refuse(name, number, line, "a '#begin document (NAME); part N' before it")
    if draft is not None:
        raise FormatError(f"{name}, line {draft.line}: the document that begins here has no '#end document'")


def write_coref(documents: Iterable[tuple[CorefDocument, Sequence[Cluster]]]) -> Iterator[str]:
    """The lines of a CoNLL-2012 file with these clusters, as the reference scorer reads it; unknown columns are `-`."""
    for document, clusters in documents:
        column = bracket_column(clusters, len(document))
        yield f"#begin document ({document.name}); part {document.part}"
        for sentence, first in zip(document.sentences, document.starts, strict=False):
            for k, word in enumerate(sentence.tokens):
                speaker = document.speakers[first + k] if document.speakers is not None else "-"
                columns = (document.name, document.part, str(k), word, *"-----", speaker, "*", column[first + k])
                yield "\t".join(columns)
            yield ""
        yield "#end document"


def bracket_column(clusters: Sequence[Cluster], length: int) -> list[str]:
    """The last column of each word; clusters are numbered from 0."""
    begins: list[list[tuple[int, str]]] = [[] for _ in range(length)]
    single: list[list[str]] = [[] for _ in range(length)]
    ends: list[list[tuple[int, str]]] = [[] for _ in range(length)]
    for number, cluster in enumerate(clusters):
        for start, end in cluster:
            if end - start == 1:
                single[start].append(f"({number})")
            else:
                begins[start].append((-end, f"({number}"))  # the longer opens first
                ends[end - 1].append((-start, f"{number})"))  # the shorter closes first
    return [
        "|".join([*(text for _, text in sorted(e)), *(text for _, text in sorted(b)), *s]) or "-"
        for b, s, e in zip(begins, single, ends, strict=True)
    ]


@dataclass
class _Draft:
    """A document while its lines come in."""

    file: str
    line: int
    name: str
    part: str
    columns: int = 0
    sentences: list[list[str]] = field(default_factory=lambda: [[]])
    speakers: list[str] = field(default_factory=list)
    clusters: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))
    opened: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))  # word and line
    notes: list[str] = field(default_factory=list)
    length: int = 0
    following: int = 0  # the number that the next word should have

    def add(self, number: int, line: str) -> None:
        row = line.split("\t") if "\t" in line else line.split()
        self.columns = self.columns or len(row)
        if len(row) != self.columns and min(len(row), self.columns) < CONLL_2012:
            _refuse(self.file, number, line, f"{self.columns} columns as on the lines above, not {len(row)}")
        if len(row) != BRACKETED and len(row) < CONLL_2012:
            _refuse(
                self.file, number, line, f"{BRACKETED} columns, or {CONLL_2012} and more (CoNLL-2012), not {len(row)}"
            )
        full = len(row) >= CONLL_2012
        counted, word = (row[_NUMBER], row[_WORD]) if full else (row[0], row[1])
        if not counted.isdecimal() or int(counted) not in (self.following, 0):
            _refuse(self.file, number, line, f"word number {self.following} or 0, not {counted!r}")
        if not word:
            word = _LOST
            self.notes.append(f"{self.file}, line {number}: has no word; read as {_LOST!r}")
        self.following = int(counted) + 1
        if full:
            word = unescape_treebank(word)
            word = word[1:] if _SLASHED.fullmatch(word) else word
            self.speakers.append(row[_SPEAKER])
        self._read_brackets(number, row[-1])
        self.sentences[-1].append(word)
        self.length += 1

    def end_sentence(self) -> None:
        if self.sentences[-1]:
            self.sentences.append([])

    def document(self, splitter: Tokenizer) -> CorefDocument:
        for cluster, places in self.opened.items():
            for _, line in places:
                self.notes.append(f"{self.file}, line {line}: '({cluster}' is not closed; left out")
        sentences = [sentence for sentence in self.sentences if sentence]
        if len(sentences) == 1 and self.columns == BRACKETED:
            sentences = split_tokens(sentences[0], splitter)
        full = self.columns >= CONLL_2012
        # A file without speakers has the same mark on every word of all its documents.
        told = full and any(speaker not in _NOTHING for speaker in self.speakers)
        return CorefDocument(
            self.name,
            place_sentences(sentences),
            order_clusters(self.clusters.values()),
            tuple(self.speakers) if told else None,
            self.name.split("/")[0] if full and "/" in self.name else None,
            self.part,
            tuple(self.notes),
        )

    def _read_brackets(self, number: int, text: str) -> None:
        if text in _NOTHING:
            return
        if _PIECE.sub("", text):
            _refuse(self.file, number, text, "mentions such as (3, 3) and (3), or - or _ for none, in the last column")
        for piece in _PIECE.finditer(text):
            if piece["one"]:
                self.clusters[piece["one"]].append(Mention(self.length, self.length + 1))
            elif piece["begins"]:
                self.opened[piece["begins"]].append((self.length, number))
            elif piece["ends"]:
                if places := self.opened[piece["ends"]]:
                    self.clusters[piece["ends"]].append(Mention(places.pop()[0], self.length + 1))
                else:
                    self.notes.append(f"{self.file}, line {number}: '{piece['ends']})' closes nothing; left out")


def _refuse(name: str, number: int, got: str, expected: str) -> NoReturn:
    raise FormatError(f"{name}, line {number}: {got[:60]!r}; expected {expected}")
