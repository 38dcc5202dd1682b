"""Files of texts, or pairs of texts, with a label each: CSV, TSV and JSON lines with named fields."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmokit.errors import FormatError
from elmokit.formats import read_lines
from elmokit.formats.read import sentence_of
from elmokit.formats.records import Record, RecordFormat, read_records, unit_of
from elmokit.formats.streams import look_ahead, source_name, suffix_of
from elmokit.text import Sentence, Tokenizer

SUFFIXES: dict[str, RecordFormat] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}


@dataclass(frozen=True, slots=True)
class FieldChoice:
    """A field by its name or, where none was given, the first there is of the usual ones."""

    name: str
    setting: str  # where a name is given, for messages
    usual: tuple[str, ...]

    def find(self, record: Record) -> str | None:
        if self.name:
            return self.name if self.name in record.fields else None
        return next((name for name in self.usual if name in record.fields), None)

    def pick(self, record: Record) -> str:
        """The field's name in this record."""
        found = self.find(record)
        if found is None:
            wanted = repr(self.name) if self.name else "any of " + ", ".join(self.usual)
            known = ", ".join(map(repr, record.fields)) or "none"
            flag = " (elmokit apply: --field)" if self.setting == "text_field" else ""
            raise FormatError(
                f"{record.place}: has no field {wanted}; its fields are {known}; name one of them by "
                f"{self.setting}{flag}"
            )
        return found


@dataclass(frozen=True, slots=True)
class Labelled:
    """The texts of one record as sentences, its label if there is one, and where it stands."""

    sentences: tuple[Sentence, ...]
    label: str | None
    place: str


def named_format(path: str | Path) -> RecordFormat | None:
    """What the name tells once a compression suffix is off."""
    return SUFFIXES.get(suffix_of(path))


def open_labelled(path: str | Path) -> tuple[RecordFormat | Literal["trees"], Iterator[str]]:
    """A file's format, by its name or else by its first line, and all its lines."""
    lines = read_lines(path)
    if (named := named_format(path)) is not None:
        return named, lines
    head, lines = look_ahead(lines)
    first = head[-1] if head else ""
    begin = first.lstrip()[:1]
    found: RecordFormat | Literal["trees"] | None = (
        "trees" if begin == "(" else "jsonl" if begin == "{" else "tsv" if "\t" in first else None
    )
    if found is None:
        raise FormatError(
            f"{source_name(path)}, line {len(head)}: {first[:40]!r} tells no format; expected trees such as "
            f"(3 (2 It) (4 works)), JSON objects, columns between tabs, or a name that ends in .csv, .tsv or .jsonl"
        )
    return found, lines


def read_labelled(
    path: str | Path,
    lines: Iterator[str],
    format: RecordFormat,
    *,
    texts: Sequence[FieldChoice],
    label: FieldChoice,
    tokenizer: Tokenizer,
    need_label: bool = True,
) -> Iterator[Labelled]:
    """The records of a file; a text is a string, cut by the tokenizer, or (in JSON) a list of tokens."""
    for record in read_records(lines, name=source_name(path), format=format):
        units = [unit_of(record.fields, field.pick(record), record.place) for field in texts]
        sentences = tuple(sentence_of(unit, tokenizer) for unit in units)
        yield Labelled(sentences, _label(record, label) if need_label else None, record.place)


def _label(record: Record, field: FieldChoice) -> str:
    value = record.fields[field.pick(record)]
    if isinstance(value, bool | int | str) and str(value).strip():
        return str(value).strip()
    raise FormatError(f"{record.place}: the label is {str(value)[:40]!r}, expected a word or a whole number")
