"""Records of CSV, TSV and JSON lines, each with the line it begins on."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import FormatError
from elmokit.formats.records import RecordFormat, read_records


def read(text: str, format: RecordFormat) -> list[tuple[dict[str, object], str]]:
    lines = text.split("\n")
    return [(dict(record.fields), record.place) for record in read_records(lines, name="data", format=format)]


def test_csv_quotes_may_hold_commas_and_line_breaks() -> None:
    text = 'text,label\n"one, ""two""\nthree",x\n\nplain,y\n'
    assert read(text, "csv") == [
        ({"text": 'one, "two"\nthree', "label": "x"}, "data, line 2"),
        ({"text": "plain", "label": "y"}, "data, line 5"),
    ]


def test_tsv_quotes_are_text() -> None:
    assert read('a\tb\n"half\tx"\n', "tsv") == [({"a": '"half', "b": 'x"'}, "data, line 2")]


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_a_field_may_be_a_whole_book(format: RecordFormat) -> None:
    book = "word " * 60_000
    ((fields, _),) = read(f"text\n{book}\n", format)
    assert fields["text"] == book


def test_tsv_keeps_a_carriage_return() -> None:
    assert read("text\tlabel\na\rb\tc\n", "tsv") == [({"text": "a\rb", "label": "c"}, "data, line 2")]


def test_json_lines() -> None:
    assert read('{"a": 1}\n\n{"b": null}', "jsonl") == [({"a": 1}, "data, line 1"), ({"b": None}, "data, line 3")]


@given(
    st.lists(
        st.lists(
            st.text(st.characters(blacklist_characters="\r\0", blacklist_categories=["Cs"])), min_size=3, max_size=3
        )
    )
)
def test_csv_comes_back_as_it_was_written(rows: list[list[str]]) -> None:
    rows = [row for row in rows if any(row)]
    written = io.StringIO()
    csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b", "c"], *rows])
    assert [list(fields.values()) for fields, _ in read(written.getvalue(), "csv")] == rows


@pytest.mark.parametrize(
    ("text", "format", "told"),
    [
        ("a,b\n1,2\n3\n", "csv", "data, line 3: has 1 fields, expected 2: a, b"),
        ('a,b\n"open,2\n', "csv", "data, line 2: not readable as a table"),
        ("a\ta\n", "tsv", "data, line 1: the header is"),
        ("{]", "jsonl", "data, line 1: not valid JSON"),
        ('{}\n["a"]', "jsonl", "data, line 2: holds a list, expected an object"),
    ],
)
def test_what_is_broken_is_told_with_its_line(text: str, format: RecordFormat, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        read(text, format)


def test_long_json_numbers_are_no_crash() -> None:
    assert read(json.dumps({"n": 10**30}), "jsonl")[0][0] == {"n": 10**30}
