"""Fields of the texts, kept with their occurrences: read from every format, checked, resumed; not in older indexes."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import models
from elmokit.encoders import Elmo
from elmokit.errors import FormatError, InputError
from elmokit.formats import read_sentences
from elmokit.index import Index, IndexSettings
from elmokit.text import Sentence

LETTERS = [
    {"text": "The bank was old.", "year": 1848, "author": "Ann  B.", "kept": True},
    {"text": "A bank and a river.", "year": None, "author": "Bob"},
    {"text": "The old river.", "author": "x" * 300},
]
KEEP = IndexSettings(keep=("year", "author", "file"))


@pytest.fixture(scope="module")
def elmo() -> Elmo:
    return Elmo(models.tiny().pretrained, device="cpu")


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    path = tmp_path / "letters.jsonl"
    path.write_text("".join(json.dumps(letter) + "\n" for letter in LETTERS), encoding="utf-8")
    return path


def fields_of(index: Index, word: str) -> list[dict[str, str]]:
    return [dict(index.occurrence(int(row)).fields) for row in index.rows_of(word)]


def test_a_value_stands_with_each_occurrence(elmo: Elmo, letters: Path, tmp_path: Path) -> None:
    index = Index.build(elmo, letters, tmp_path / "index", settings=KEEP)
    first = {"year": "1848", "author": "Ann B.", "file": "letters.jsonl"}
    assert fields_of(index, "bank") == [first, {"year": "", "author": "Bob", "file": "letters.jsonl"}]
    assert fields_of(index, "river")[1]["author"] == "x" * 200
    assert index.verify()
    assert Index.open(index.folder).occurrence(0).fields == first
    added = replace(elmo.tokenizer.tokenize("One more bank."), fields=("1900", "Cy", ""))
    index.grow(elmo, [added, elmo.tokenizer.tokenize("A bank without.")])
    assert [one["year"] for one in fields_of(index, "bank")] == ["1848", "", "1900", ""]
    with pytest.raises(InputError, match="has 1 fields"):
        index.grow(elmo, [Sentence.of(["few"]), replace(added, fields=("1900",))])


def test_a_parquet_file_has_columns(elmo: Elmo, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    table = pa.table({"year": [1848, None, 1850], "other": [1, 2, 3], "text": [one["text"] for one in LETTERS]})
    parquet.write_table(table, tmp_path / "letters.parquet")
    index = Index.build(
        elmo, tmp_path / "letters.parquet", tmp_path / "index", settings=IndexSettings(keep=("file", "year"))
    )
    assert fields_of(index, "bank") == [{"file": "letters.parquet", "year": year} for year in ("1848", "")]
    with pytest.raises(FormatError, match=r"no field 'yaer'.*'year'"):
        list(read_sentences(tmp_path / "letters.parquet", tokenizer=elmo.tokenizer, keep=["yaer"]))


def test_plain_text_has_the_name_of_its_file_only(elmo: Elmo, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("The bank.\n", encoding="utf-8")
    (tmp_path / "c.conll").write_text("The X O\nbank X O\n\n", encoding="utf-8")
    folder = tmp_path / "index"
    for path in ("a.txt", "b.txt", "c.conll"):
        index = Index.build(elmo, tmp_path / path, folder, settings=IndexSettings(keep=("file",)))
    assert [one["file"] for one in fields_of(index, "bank")] == ["a.txt", "b.txt", "c.conll"]
    with pytest.raises(FormatError, match=r"a\.txt: has no field 'year' to keep; there are 'file'"):
        list(read_sentences(tmp_path / "a.txt", tokenizer=elmo.tokenizer, keep=["year"]))


def test_wrong_fields_are_told(elmo: Elmo, letters: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"line 1: has no field 'yaer' to keep; there are 'text', 'year'"):
        list(read_sentences(letters, tokenizer=elmo.tokenizer, keep=["yaer"]))
    letters.write_text('{"text": "One.", "year": [1, 2]}\n', encoding="utf-8")
    with pytest.raises(FormatError, match=r"line 1: field 'year' holds a list, expected a string or a number"):
        list(read_sentences(letters, tokenizer=elmo.tokenizer, keep=["year"]))
    with pytest.raises(InputError, match="expected different names"):
        IndexSettings(keep=("year", "year"))


def test_an_index_without_fields_stays_so(elmo: Elmo, letters: Path, tmp_path: Path) -> None:
    plain = Index.build(elmo, letters, tmp_path / "plain")
    told = json.loads((plain.folder / "index.json").read_text(encoding="utf-8"))
    del told["settings"]["keep"]  # as it was written before there were fields
    (plain.folder / "index.json").write_text(json.dumps(told), encoding="utf-8")
    opened = Index.open(plain.folder)
    assert opened.occurrence(0).fields == {}
    assert opened.settings.keep == ()
    assert Index.build(elmo, [["more"]], plain.folder).verify()
    with pytest.raises(InputError, match=r"keep: nothing there, year, author, file now"):
        Index.build(elmo, letters, plain.folder, settings=KEEP)
    kept = Index.build(elmo, letters, tmp_path / "kept", settings=KEEP)
    shutil.copy(plain.segments[0].path, kept.segments[0].path)
    with pytest.raises(FormatError, match="keeps 0 fields of its texts"):
        Index.open(kept.folder)


class KilledError(Exception):
    pass


def test_a_killed_build_resumes_with_the_same_fields(
    elmo: Elmo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 32)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 50)
    sentences = [Sentence((f"w{k % 9}", "bank"), fields=(str(1800 + k), "A", "f")) for k in range(120)]

    def dying() -> Iterator[Sentence]:
        yield from sentences[:90]
        raise KilledError

    whole = Index.build(elmo, sentences, tmp_path / "whole", settings=KEEP)
    with pytest.raises(KilledError):
        Index.build(elmo, dying(), tmp_path / "killed", settings=KEEP)
    assert 0 < len(Index.open(tmp_path / "killed")) < len(whole)
    others = [replace(sentence, fields=("1700", "A", "f")) for sentence in sentences]
    with pytest.raises(InputError, match="are not those given now"):
        Index.build(elmo, others, tmp_path / "killed", settings=KEEP)
    killed = Index.build(elmo, sentences, tmp_path / "killed", settings=KEEP)
    assert len(whole.segments) > 2
    for one, other in zip(whole.segments, killed.segments, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes()
    assert [one["year"] for one in fields_of(killed, "bank")] == [str(1800 + k) for k in range(120)]
