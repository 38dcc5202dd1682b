"""JSON lines: one object a line, the text or the tokens in one of its fields."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from elmokit.errors import FormatError
from elmokit.formats.streams import ReadReport, mend

Unit = str | tuple[str, ...]  # running text, or tokens


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
