"""Records with named fields, one after another: JSON lines, CSV and TSV with a header line."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.errors import FormatError
from elmokit.formats.streams import ReadReport, mend

RecordFormat = Literal["jsonl", "csv", "tsv"]
Unit = str | tuple[str, ...]  # running text, or tokens


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
            ended = (f"{line}\n" for line in lines)  # so that a quoted line break comes through
            yield from _table_records(csv.reader(ended, strict=True), name)
        case "tsv":
            yield from _table_records(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), name)


def _table_records(rows: Any, name: str) -> Iterator[Record]:
    header: list[str] | None = None
    begin = 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise FormatError(f"{name}, line {begin}: not readable as a table ({error}); check its quotes") from error
        if row is None:
            return
        place, begin = f"{name}, line {begin}", rows.line_num + 1
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
    for record, place in read_objects(lines, name=name, first_line=first_line, like=f"{{{field!r}: ...}}"):
        yield unit_of(record, field, place, report)


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


def _mended(text: str, report: ReadReport | None) -> str:
    text, bad = mend(text)
    if report is not None:
        report.bad_bytes += bad
    return text
