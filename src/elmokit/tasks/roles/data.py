"""Predicates and their arguments: JSON lines, CoNLL-2005 and CoNLL-2012 columns, and marks in plain text.

JSON lines  {"words": [...], "frames": [{"verb": 3, "tags": ["B-ARG0", ..., "B-V", ...]}, ...]}, one sentence a line;
            "verb" is the number of the predicate's word, from 0, and "tags" are IOB2; they may be missing where
            nothing is to be scored
CoNLL-2005  the word first, then any columns, the predicate's lemma or -, and a column of brackets for each predicate
            of the sentence: (A0*  *  *)  (V*)  *
CoNLL-2012  the same in its own columns, behind a line that begins with #begin document
text        *asterisks* around the predicates: Mary *sold* her car and *bought* a bicycle.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from elmokit.errors import FormatError, InputError
from elmokit.formats.records import read_records
from elmokit.formats.streams import ReadReport, look_ahead, mend, read_lines, source_name
from elmokit.tasks.labels import Span, convert_tags, read_spans, write_tags
from elmokit.text import Sentence, Tokenizer, unescape_treebank

NO_PREDICATE = "-"

_MARKED = re.compile(r"(?<![\w*])\*(\w[^\s*]*)\*(?![\w*])")
_BRACKETS = re.compile(r"(?:\(([^()*\s]+))?\*(\))?")


@dataclass(frozen=True, slots=True)
class Proposition:
    """A sentence, one predicate in it, and the role of every word, in IOB2; None where that is not known."""

    sentence: Sentence
    predicate: int  # the word's number
    tags: tuple[str, ...] | None = None
    lemma: str = ""  # of the predicate, or its frame, where the file tells

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.sentence,)


class Columns(NamedTuple):
    """Where the parts stand in a line of columns."""

    word: int
    predicate: int
    arguments: int  # the first of them
    behind: int  # how many columns follow the arguments


CONLL_2012 = Columns(word=3, predicate=7, arguments=11, behind=1)


def read_propositions(
    path: str | Path, *, predicate_column: int = 1, labelled: bool = True, report: ReadReport | None = None
) -> Iterator[Proposition]:
    """All predicates of a file in its order; JSON lines or columns, as its first line tells."""
    name = source_name(path)
    head, lines = look_ahead(read_lines(path, report=report))
    first = head[-1] if head else ""
    if first.lstrip().startswith("{"):
        yield from _from_records(lines, name, labelled=labelled)
    else:
        usual = Columns(0, predicate_column, predicate_column + 1, 0)
        yield from _from_columns(lines, name, CONLL_2012 if first.startswith("#begin document") else usual)


def has_marks(text: str) -> bool:
    """Whether a text marks predicates by asterisks."""
    return _MARKED.search(text) is not None


def read_marked(text: str, tokenizer: Tokenizer) -> list[Proposition]:
    """The predicates of running text: words between asterisks, which are not read; offsets lead into the `text`."""
    if not has_marks(text):
        return []
    kept: list[int] = []  # the place in `text` of every character that is read
    marked: list[tuple[int, int]] = []  # where predicates stand in what is read
    at = 0
    for match in _MARKED.finditer(text):
        kept += [*range(at, match.start()), *range(match.start() + 1, match.end() - 1)]
        marked.append((len(kept) - len(match[1]), len(kept)))
        at = match.end()
    kept += range(at, len(text))
    plain = "".join(text[k] for k in kept)
    found: list[Proposition] = []
    for sentence in tokenizer.split(plain):
        places = [(sentence.start + a, sentence.start + b) for a, b in sentence.offsets or ()]
        back = [(kept[a], kept[b - 1] + 1) for a, b in places]
        begin = kept[sentence.start] if places else 0
        whole = Sentence(
            sentence.tokens,
            text[begin : back[-1][1]] if back else "",
            tuple((a - begin, b - begin) for a, b in back),
            begin,
        )
        for start, end in marked:
            inside = [k for k, (a, b) in enumerate(places) if a < end and b > start]
            if inside:
                found.append(Proposition(whole, inside[0]))
    return found


def write_columns(proposition: Proposition, tags: Sequence[str]) -> str:
    """The sentence in CoNLL-2005 columns, with this predicate alone; a blank line ends it."""
    spans = {span.start: span for span in read_spans(tags)}
    ends = {span.end - 1 for span in spans.values()}
    rows: list[str] = []
    for k, word in enumerate(proposition.sentence.tokens):
        lemma = (proposition.lemma or word) if k == proposition.predicate else NO_PREDICATE
        bracket = (f"({spans[k].type}" if k in spans else "") + "*" + (")" if k in ends else "")
        rows.append(f"{word}\t{lemma}\t{bracket}\n")
    return "".join(rows) + "\n"


def _from_records(lines: Iterable[str], name: str, *, labelled: bool) -> Iterator[Proposition]:
    for record in read_records(lines, name=name, format="jsonl"):
        words, frames = record.fields.get("words"), record.fields.get("frames")
        if words is None:
            named = "text" if "text" in record.fields else "NAME"
            raise FormatError(
                f"{record.place}: has no 'words' and 'frames'; to read one of its fields as running text, choose it "
                f"(apply --field {named})"
            )
        if not _strings(words) or not all(words):
            raise FormatError(f"{record.place}: 'words' is {str(words)[:40]!r}, expected a list of words, none empty")
        if not isinstance(frames, list) or not all(isinstance(frame, Mapping) for frame in frames):
            raise FormatError(f"{record.place}: 'frames' is {str(frames)[:40]!r}, expected a list of objects")
        sentence = Sentence.of(mend(word)[0] for word in words)
        for k, frame in enumerate(frames):
            yield _frame(sentence, frame, f"{record.place}, frame {k}", labelled=labelled)


def _frame(sentence: Sentence, frame: Mapping[str, Any], place: str, *, labelled: bool) -> Proposition:
    verb, tags = frame.get("verb"), frame.get("tags")
    if type(verb) is not int or not 0 <= verb < len(sentence):
        raise FormatError(f"{place}: 'verb' is {verb!r}, expected the number of a word, from 0 to {len(sentence) - 1}")
    lemma = str(frame.get("frame", ""))
    if tags is None and not labelled:
        return Proposition(sentence, verb, None, lemma)
    if not _strings(tags) or len(tags) != len(sentence):
        raise FormatError(f"{place}: 'tags' is {str(tags)[:40]!r}, expected {len(sentence)} labels, one for each word")
    try:
        written = convert_tags(tags, "IOB2")
    except InputError as error:
        raise FormatError(f"{place}: {error}") from error
    if wrong := [k for k, (a, b) in enumerate(zip(tags, written, strict=True)) if a != b]:
        raise FormatError(
            f"{place}: label {tags[wrong[0]]!r} of word {wrong[0]} continues no span; IOB2 begins each span with B-"
        )
    return Proposition(sentence, verb, tuple(tags), lemma)


def _strings(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _from_columns(lines: Iterable[str], name: str, columns: Columns) -> Iterator[Proposition]:
    numbered = ((number, line.split()) for number, line in enumerate(lines, 1) if not line.startswith("#"))
    for real, group in groupby(numbered, key=lambda item: bool(item[1])):
        if real:
            rows = list(group)
            yield from _column_sentence([row for _, row in rows], [number for number, _ in rows], name, columns)


def _column_sentence(
    rows: Sequence[Sequence[str]], numbers: Sequence[int], name: str, columns: Columns
) -> Iterator[Proposition]:
    least = columns.arguments + columns.behind
    for row, number in zip(rows, numbers, strict=True):
        if len(row) < least:
            raise FormatError(f"{name}, line {number}: has {len(row)} columns, expected {least} or more")
    if all(len(row) == least for row in rows) and any(row[columns.predicate] != NO_PREDICATE for row in rows):
        raise FormatError(
            f"{name}, line {numbers[0]}: has {least} columns and so no roles, though words of its sentence have a "
            f"predicate in column {columns.predicate + 1}; expected one column more for each predicate"
        )
    predicates = [k for k, row in enumerate(rows) if row[columns.predicate] != NO_PREDICATE]
    for row, number in zip(rows, numbers, strict=True):
        if len(row) != least + len(predicates):
            raise FormatError(
                f"{name}, line {number}: has {len(row)} columns, expected {least + len(predicates)}, since "
                f"{len(predicates)} words of its sentence have a predicate in column {columns.predicate + 1}"
            )
    sentence = Sentence.of(unescape_treebank(row[columns.word]) for row in rows)
    for k, predicate in enumerate(predicates):
        brackets = [row[columns.arguments + k] for row in rows]
        tags = _read_brackets(brackets, numbers, name)
        yield Proposition(sentence, predicate, tuple(tags), rows[predicate][columns.predicate])


def _read_brackets(brackets: Sequence[str], numbers: Sequence[int], name: str) -> list[str]:
    """A column of brackets as IOB2 labels."""
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    for k, bracket in enumerate(brackets):
        match = _BRACKETS.fullmatch(bracket)
        if match is None or (match[1] and opened) or (match[2] and not (match[1] or opened)):
            raise FormatError(
                f"{name}, line {numbers[k]}: {bracket!r} not understood; expected (ROLE*, * or *), "
                "one span closed before the next begins"
            )
        if match[1]:
            opened = (k, match[1])
        if match[2] and opened:
            spans.append(Span(opened[0], k + 1, opened[1]))
            opened = None
    if opened:
        raise FormatError(f"{name}, line {numbers[opened[0]]}: the span ({opened[1]}* is not closed in its sentence")
    return write_tags(spans, len(brackets), scheme="IOB2")
