"""Records with named fields, one after another: JSON lines, CSV and TSV with a header line."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from elmokit.errors import FormatError
from elmokit.formats.jsonl import read_objects

RecordFormat = Literal["jsonl", "csv", "tsv"]


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
