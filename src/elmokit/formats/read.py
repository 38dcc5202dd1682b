"""Files, folders and patterns to sentences, whichever format the files have."""

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Literal, get_args

from elmokit.errors import InputError
from elmokit.formats.ahead import Cutters
from elmokit.formats.columns import read_columns
from elmokit.formats.conllu import read_conllu
from elmokit.formats.records import Unit, read_jsonl_with, require_fields, values_of
from elmokit.formats.streams import STDIN, ReadReport, read_lines, source_name, suffix_of
from elmokit.formats.tables import read_parquet_with
from elmokit.text import Sentence, Tokenizer, unescape_treebank

Format = Literal["text", "jsonl", "conllu", "columns", "parquet"]
Lines = Literal["sentences", "paragraphs"]  # what a line of text, a JSON field or a Parquet value holds
SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tok": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".conllu": "conllu",
    ".conll": "columns",
    ".iob": "columns",
    ".iob2": "columns",
    ".bio": "columns",
    ".parquet": "parquet",
}
TABLES = (".csv", ".tsv", ".json")  # which some tasks read; to everything else they are text
UNFINISHED = ".partial"  # ends the name of the folder of a run that is not finished


def read_sentences(
    source: str | Path,
    *,
    tokenizer: Tokenizer,
    format: Format | Literal["auto"] = "auto",
    field: str = "text",
    lines: Lines = "sentences",
    treebank: bool = False,
    keep: Sequence[str] = (),
    report: ReadReport | None = None,
    cutters: Cutters | None = None,
) -> Iterator[Sentence]:
    """The sentences of a file or, for '-', of standard input.

    Plain text has one sentence a line, and a blank line is an empty sentence, so that the k-th result belongs to the
    k-th line; the whitespace tokenizer reads text that is already tokenised. `field` names the JSON field or Parquet
    column. With lines="paragraphs", a line, a field or a value is split into its sentences. Lists of tokens, CoNLL-U
    and column files keep their own tokens and sentences. `treebank` undoes the Penn Treebank's escapes in the tokens.
    `keep` names JSON fields or Parquet columns whose values go with each sentence (`Sentence.fields`); "file" is the
    file's name, which every format has. `cutters` cut text in other processes, by the same tokenizer and `lines`;
    their sentences have no offsets. Without a `report`, bytes that are not UTF-8 are told in a warning.
    """
    known = ("auto", *get_args(Format))
    if format not in known:
        raise InputError(f"no format {format!r}; expected one of {', '.join(known)}")
    if lines not in get_args(Lines):
        raise InputError(f"lines is {lines!r}; expected one of {', '.join(get_args(Lines))}")
    chosen = format_of(source) if format == "auto" else format
    sentences = _read(source, chosen, tokenizer, field, lines, tuple(keep), report, cutters)
    return map(_unescaped, sentences) if treebank else sentences


def _read(
    source: str | Path,
    chosen: Format,
    tokenizer: Tokenizer,
    field: str,
    lines: Lines,
    keep: tuple[str, ...],
    report: ReadReport | None,
    cutters: Cutters | None,
) -> Iterator[Sentence]:
    name = source_name(source)
    if chosen not in ("jsonl", "parquet"):
        require_fields(keep, (), name)
    values = values_of({}, keep, name, name)  # of a file whose texts have no fields

    def table() -> Iterator[tuple[Unit, tuple[str, ...]]]:
        counts = ReadReport() if report is None else report
        counts.files += 1
        for unit, own in read_parquet_with(source, keep, field=field, report=counts):
            counts.lines += 1
            counts.blank_lines += not unit or (isinstance(unit, str) and unit.isspace())
            yield unit, own

    match chosen:
        case "conllu":
            parsed = read_conllu(read_lines(source, report=report), name=name)
            return (replace(found.sentence, fields=values) for found in parsed)
        case "columns":
            blocks = read_columns(read_lines(source, report=report), name=name)
            return (replace(found.sentence, fields=values) for found in blocks)
        case "text":
            units: Iterable[tuple[Unit, tuple[str, ...]]] = zip(read_lines(source, report=report), repeat(values))
        case "jsonl":
            units = read_jsonl_with(read_lines(source, report=report), keep, name=name, field=field, report=report)
        case "parquet":
            units = table()
    return _cut(units, tokenizer, lines) if cutters is None else cutters.sentences(units)


def _cut(units: Iterable[tuple[Unit, tuple[str, ...]]], tokenizer: Tokenizer, lines: Lines) -> Iterator[Sentence]:
    for unit, values in units:
        sentences = sentences_of(unit, tokenizer, lines=lines)
        yield from (replace(sentence, fields=values) for sentence in sentences) if values else sentences


def told_lines(lines: str) -> str:
    """How lines were read, for the output of commands."""
    return "lines read as paragraphs, split into sentences" if lines == "paragraphs" else "lines read as sentences"


def sentence_of(unit: Unit, tokenizer: Tokenizer) -> Sentence:
    """Text by the tokenizer; tokens as they are."""
    return tokenizer.tokenize(unit) if isinstance(unit, str) else Sentence.of(unit)


def sentences_of(unit: Unit, tokenizer: Tokenizer, *, lines: Lines = "sentences") -> Sequence[Sentence]:
    """Text as one sentence, or as a paragraph's sentences; tokens as they are. Blank text is one empty sentence."""
    split = tokenizer.split(unit) if lines == "paragraphs" and isinstance(unit, str) else []
    return split or [sentence_of(unit, tokenizer)]


def _unescaped(sentence: Sentence) -> Sentence:
    # The spans still say where each token is, though the text keeps its escapes.
    tokens = tuple(map(unescape_treebank, sentence.tokens))
    return replace(sentence, tokens=tokens)


def format_of(source: str | Path) -> Format:
    """The format that the name says, without a compression suffix; plain text for any other name."""
    return SUFFIXES.get(suffix_of(source), "text")


def expand_inputs(inputs: Sequence[str | Path], *, tables: Sequence[str] = ()) -> list[str | Path]:
    """Files as given, folders as the files of known suffixes (and those of `tables`) in them, patterns as matches.

    Folders are read recursively, folders and patterns in sorted order. A name that exists is never taken for a
    pattern. '-' (standard input) passes through. What unfinished runs have left is none of it.
    """
    found: list[str | Path] = []
    for item in inputs:
        path = Path(item)
        if str(item) == STDIN or (path.exists() and not path.is_dir()):
            found.append(item)
        elif path.is_dir():
            found += _files_in(path, (*SUFFIXES, *tables))
        elif glob.has_magic(str(item)):
            found += _matches(str(item))
        else:
            raise InputError(f"{item}: no such file or folder; check the path (relative to {Path.cwd()})")
    return found


def _files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if suffix_of(path) in suffixes
        and path.is_file()
        and not any(part.startswith(".") or part.endswith(UNFINISHED) for part in path.relative_to(folder).parts)
    ]
    if not files:
        known = " ".join(sorted(suffixes))
        raise InputError(f"{folder}: holds no text files; looked for names ending in {known}, compressed or not")
    return files


def _matches(pattern: str) -> list[Path]:
    files = [path for path in map(Path, sorted(glob.glob(pattern, recursive=True))) if path.is_file()]
    if UNFINISHED not in pattern:
        files = [path for path in files if not any(part.endswith(UNFINISHED) for part in path.parts)]
    if not files:
        raise InputError(f"{pattern}: no file matches this pattern (relative to {Path.cwd()})")
    return files
