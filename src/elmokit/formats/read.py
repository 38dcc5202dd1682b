"""One way in: any readable source to Sentences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from elmokit.errors import InputError
from elmokit.formats.columns import read_columns
from elmokit.formats.conllu import read_conllu
from elmokit.formats.inputs import Format, format_of
from elmokit.formats.jsonl import Unit, read_jsonl
from elmokit.formats.streams import ReadReport, read_lines, source_name
from elmokit.formats.tables import read_parquet
from elmokit.text import Sentence, Tokenizer, unescape_treebank


def read_sentences(
    source: str | Path,
    *,
    tokenizer: Tokenizer,
    format: Format | Literal["auto"] = "auto",
    field: str = "text",
    treebank: bool = False,
    report: ReadReport | None = None,
) -> Iterator[Sentence]:
    """The sentences of a file or, for '-', of standard input.

    Plain text has one sentence a line, and a blank line is an empty sentence, so that the k-th result belongs to the
    k-th line; the whitespace tokenizer reads text that is already tokenised. `field` names the JSON field or Parquet
    column; lists of tokens, CoNLL-U and column files keep their own tokens. `treebank` undoes the Penn Treebank's
    escapes in the tokens.
    """
    report = ReadReport() if report is None else report
    known = ("auto", *get_args(Format))
    if format not in known:
        raise InputError(f"no format {format!r}; expected one of {', '.join(known)}")
    chosen = format_of(source) if format == "auto" else format
    for sentence in _read(source, chosen, tokenizer, field, report):
        yield _unescaped(sentence) if treebank else sentence


def _read(
    source: str | Path, chosen: Format, tokenizer: Tokenizer, field: str, report: ReadReport
) -> Iterator[Sentence]:
    name = source_name(source)
    match chosen:
        case "text":
            yield from map(tokenizer.tokenize, read_lines(source, report=report))
        case "jsonl":
            lines = read_lines(source, report=report)
            for unit in read_jsonl(lines, name=name, field=field, report=report):
                yield sentence_of(unit, tokenizer)
        case "parquet":
            report.files += 1
            for unit in read_parquet(source, field=field, report=report):
                report.lines += 1
                report.blank_lines += not unit or (isinstance(unit, str) and unit.isspace())
                yield sentence_of(unit, tokenizer)
        case "conllu":
            for parsed in read_conllu(read_lines(source, report=report), name=name):
                yield parsed.sentence
        case "columns":
            for block in read_columns(read_lines(source, report=report), name=name):
                yield block.sentence


def sentence_of(unit: Unit, tokenizer: Tokenizer) -> Sentence:
    """Text by the tokenizer; tokens as they are."""
    return tokenizer.tokenize(unit) if isinstance(unit, str) else Sentence.of(unit)


def _unescaped(sentence: Sentence) -> Sentence:
    # The spans still say where each token is, though the text keeps its escapes.
    tokens = tuple(map(unescape_treebank, sentence.tokens))
    return Sentence(tokens, sentence.text, sentence.offsets, sentence.start)
