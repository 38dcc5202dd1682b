"""Records with named fields, one after another: JSON lines, CSV and TSV with a header line."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import FormatError
from elmokit.formats.streams import ReadReport, mend

RecordFormat = Literal["jsonl", "csv", "tsv"]
Unit = str | tuple[str, ...]  # running text, or tokens
FILE = "file"  # the name under which the name of a text's file is kept
LONGEST_VALUE = 200  # characters
LONGEST_FIELD = 1 << 28  # characters of CSV; Python's own limit is 131,072


@dataclass(frozen=True, slots=True)
class Record:
    """What one record holds, and its place ("file, line 3"), for messages."""

    fields: Mapping[str, Any]
    place: str


def read_records(lines: Iterable[str], *, name: str, format: RecordFormat) -> Iterator[Record]:
    """The records of a file. A field of CSV may be quoted and go over several lines; in TSV quotes are plain text."""
    match format:
        case "jsonl":
            yield from (Record(fields, place) for fields, place in read_objects(lines, name=name))
        case "csv":
            yield from _table_records(_csv_rows(lines, name), name)
        case "tsv":
            yield from _table_records(enumerate((line.split("\t") for line in lines), 1), name)


def _csv_rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row and the line that it begins on."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    rows = csv.reader((f"{line}\n" for line in lines), strict=True)  # so that a quoted line break comes through
    begin = 1
    try:
        for row in rows:
            yield begin, row
            begin = rows.line_num + 1
    except csv.Error as error:
        raise FormatError(f"{name}, line {begin}: not readable as a table ({error}); check its quotes") from error


def _table_records(rows: Iterable[tuple[int, list[str]]], name: str) -> Iterator[Record]:
    header: list[str] | None = None
    for line, row in rows:
        place = f"{name}, line {line}"
        if not any(row):
            continue
        if header is None:
            header = _header(row, place)
        elif len(row) != len(header):
            raise FormatError(f"{place}: has {len(row)} fields, expected {len(header)}: {', '.join(header)}")
        else:
            yield Record(dict(zip(header, row, strict=True)), place)


def _header(row: list[str], place: str) -> list[str]:
    names = [name.strip() for name in row]
    if len(set(names)) != len(names) or not all(names):
        raise FormatError(f"{place}: the header is {names}; expected a different name for each column")
    return names


def read_jsonl(
    lines: Iterable[str], *, name: str, field: str = "text", first_line: int = 1, report: ReadReport | None = None
) -> Iterator[Unit]:
    """The field of each line: a string is text, a list of strings is tokens. Blank lines are passed over."""
    for unit, _ in read_jsonl_with(lines, (), name=name, field=field, first_line=first_line, report=report):
        yield unit


def read_jsonl_with(
    lines: Iterable[str],
    keep: Sequence[str],
    *,
    name: str,
    field: str = "text",
    first_line: int = 1,
    report: ReadReport | None = None,
) -> Iterator[tuple[Unit, tuple[str, ...]]]:
    """The same, with the values of the fields `keep`; the first record must have them, later ones may lack some."""
    first = True
    for record, place in read_objects(lines, name=name, first_line=first_line, like=f"{{{field!r}: ...}}"):
        if first:
            require_fields(keep, record, place)
            first = False
        yield unit_of(record, field, place, report), values_of(record, keep, place, name)


def read_objects(
    lines: Iterable[str], *, name: str, first_line: int = 1, like: str = '{"name": ...}'
) -> Iterator[tuple[dict[str, Any], str]]:
    """The object of each line and its place ("file, line 3"); `like` is an example of one, for messages."""
    for number, line in enumerate(lines, first_line):
        if not line or line.isspace():
            continue
        place = f"{name}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{place}: not valid JSON ({error}); expected one object a line") from error
        if not isinstance(record, dict):
            raise FormatError(f"{place}: holds a {type(record).__name__}, expected an object such as {like}")
        yield record, place


def unit_of(record: Mapping[str, Any], field: str, place: str, report: ReadReport | None = None) -> Unit:
    """The text or tokens in a record's field; null is empty text."""
    if field not in record:
        known = ", ".join(map(repr, record)) or "none"
        raise FormatError(f"{place}: has no field {field!r}; its fields are {known}; choose one of them")
    value = record[field]
    if value is None:
        return ""
    if isinstance(value, str):
        return _mended(value, report)
    if isinstance(value, list | tuple) and all(isinstance(token, str) for token in value):
        return tuple(_mended(token, report) for token in value)
    raise FormatError(f"{place}: field {field!r} is {str(value)[:40]!r}, expected a string or a list of strings")


def require_fields(keep: Sequence[str], known: Iterable[str], place: str) -> None:
    """An error where a field is asked for that is neither known nor the file's name."""
    for name in keep:
        if name not in known and name != FILE:
            there = ", ".join(map(repr, [*known, FILE]))
            raise FormatError(f"{place}: has no field {name!r} to keep; there are {there}; choose one of them")


def values_of(record: Mapping[str, Any], keep: Sequence[str], place: str, name: str) -> tuple[str, ...]:
    """The values of these fields as text, at most 200 characters each; what is missing or null is empty.

    "file" is the name of the file, where the record has no field of that name.
    """
    return tuple(_value(record, wanted, place, name) for wanted in keep)


def _value(record: Mapping[str, Any], wanted: str, place: str, name: str) -> str:
    if wanted == FILE and wanted not in record:
        return Path(name).name
    value = record.get(wanted)
    if isinstance(value, list | tuple | dict):
        raise FormatError(f"{place}: field {wanted!r} holds a {type(value).__name__}, expected a string or a number")
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return " ".join(mend(text)[0].split())[:LONGEST_VALUE]


def _mended(text: str, report: ReadReport | None) -> str:
    text, bad = mend(text)
    if report is not None:
        report.bad_bytes += bad
    return text
