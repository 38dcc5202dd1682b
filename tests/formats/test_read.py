import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit.errors import FormatError, InputError, MissingExtraError
from elmokit.formats import ReadReport, read_dataset, read_jsonl, read_parquet, read_sentences
from elmokit.text import Sentence, load_tokenizer

SPACES = load_tokenizer("whitespace")


def tokens(source: str | Path, **options: object) -> list[tuple[str, ...]]:
    return [sentence.tokens for sentence in read_sentences(source, tokenizer=SPACES, **options)]  # type: ignore[arg-type]


def test_text_keeps_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a b\n\n  \nc\n")
    report = ReadReport()
    assert tokens(path, report=report) == [("a", "b"), (), (), ("c",)]
    assert report == ReadReport(files=1, lines=4, blank_lines=2)


def test_text_has_offsets(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(" -LRB-  b\n")
    (sentence,) = read_sentences(path, tokenizer=SPACES, treebank=True)
    assert sentence == Sentence(("(", "b"), " -LRB-  b", ((1, 6), (8, 9)))


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b\\nc", "words": ["x y", "z"]}\n\n{"text": "\\ud800 d", "words": []}\n')
    report = ReadReport()
    assert tokens(path, report=report) == [("a", "b", "c"), ("\ufffd", "d")]
    assert report == ReadReport(files=1, lines=3, blank_lines=1, bad_bytes=1)
    assert tokens(path, field="words") == [("x y", "z"), ()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "a, line 2: not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('["a"]', "holds a list, expected an object"),
        ('{"txt": "a", "id": 1}', "no field 'text'; its fields are 'txt', 'id'"),
        ('{"text": 3}', "is '3', expected a string or a list"),
        ('{"text": ["a", 3]}', "expected a string or a list"),
    ],
)
def test_malformed_jsonl(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        list(read_jsonl(['{"text": "ok"}', line], name="a"))


def test_conll_formats_by_suffix_and_by_choice(tmp_path: Path) -> None:
    columns = tmp_path / "a.conll"
    columns.write_text("-LRB- O\nb O\n\nc O\n")
    assert tokens(columns, treebank=True) == [("(", "b"), ("c",)]
    assert tokens(columns, format="text")[0] == ("-LRB-", "O")
    conllu = tmp_path / "a.conllu"
    conllu.write_text("\t".join(["1", "w", *"_" * 8]) + "\n\n")
    assert tokens(conllu) == [("w",)]
    with pytest.raises(InputError, match="no format 'xml'; expected one of auto, text, jsonl"):
        tokens(columns, format="xml")


def test_parquet_with_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["aaaa", "bbbb"])}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"bbbb", b"b\xff\xfeb"))
    with pytest.raises(FormatError, match=r"a\.parquet: not a readable Parquet file"):
        tokens(path)


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"text {k}" for k in range(1000)] + [None, ""]
    words = [["a", str(k)] for k in range(1002)]
    pq.write_table(pa.table({"text": texts, "words": words, "n": list(range(1002))}), path, row_group_size=100)
    report = ReadReport()
    assert tokens(path, report=report) == [("text", str(k)) for k in range(1000)] + [(), ()]
    assert report == ReadReport(files=1, lines=1002, blank_lines=2)
    assert tokens(path, field="words") == [tuple(row) for row in words]
    with pytest.raises(FormatError, match=r"no column 'body'; its columns are 'text', 'words', 'n'"):
        tokens(path, field="body")
    with pytest.raises(FormatError, match="row 1: field 'n'"):
        tokens(path, field="n")
    with pytest.raises(InputError, match="standard input"):
        tokens("-", format="parquet")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"a\.parquet: not a readable Parquet file"):
        tokens(path)


def test_lines_are_sentences_or_paragraphs(tmp_path: Path) -> None:
    english = load_tokenizer("english")
    text = "He sat. She ran.\n\nIt rained.\n"
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in text.splitlines()))
    for name in ("in.txt", "in.jsonl"):
        lines = [s.tokens for s in read_sentences(tmp_path / name, tokenizer=english)]
        assert lines == [("He", "sat", ".", "She", "ran", "."), (), ("It", "rained", ".")]
        split = list(read_sentences(tmp_path / name, tokenizer=english, lines="paragraphs"))
        assert [s.tokens for s in split] == [("He", "sat", "."), ("She", "ran", "."), (), ("It", "rained", ".")]
        assert [s.start for s in split] == [0, 8, 0, 0]
    with pytest.raises(InputError, match="lines is 'words'; expected one of sentences, paragraphs"):
        list(read_sentences(tmp_path / "in.txt", tokenizer=english, lines="words"))  # type: ignore[arg-type]


def test_tokenised_files_keep_their_tokens_and_sentences(tmp_path: Path) -> None:
    """`index` and `senses` of 0.1.0 cut the text of CoNLL-U again."""
    rows = "".join(f"{k}\t{w}" + "\t_" * 8 + "\n" for k, w in enumerate(("He", "sat.", "She", "ran."), 1))
    (tmp_path / "in.conllu").write_text(f"# text = He sat. She ran.\n{rows}\n")
    for lines in ("sentences", "paragraphs"):
        found = read_sentences(tmp_path / "in.conllu", tokenizer=load_tokenizer("english"), lines=lines)  # type: ignore[arg-type]
        assert [s.tokens for s in found] == [("He", "sat.", "She", "ran.")]


def test_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"elmokit\[parquet\]"):
        list(read_parquet(tmp_path / "a.parquet"))


class Dataset:
    """The part of a `datasets` dataset that is used."""

    column_names = ("text", "image")

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self.rows = rows

    def select_columns(self, names: list[str]) -> "Dataset":
        return Dataset([{name: row[name] for name in names} for row in self.rows])

    def __iter__(self):  # type: ignore[no-untyped-def]
        assert all(list(row) == ["text"] for row in self.rows)
        return iter(self.rows)


def test_dataset() -> None:
    rows: list[dict[str, object]] = [{"text": "a", "image": object()}, {"text": "b", "image": object()}]
    assert list(read_dataset(Dataset(rows))) == ["a", "b"]
    assert list(read_dataset(iter(rows))) == ["a", "b"]
    with pytest.raises(FormatError, match="dataset, row 1: has no field 'body'"):
        list(read_dataset(rows, field="body"))
    with pytest.raises(InputError, match=r"splits \(train, test\)"):
        list(read_dataset({"train": rows, "test": rows}))
    with pytest.raises(InputError, match="row 1 is a str"):
        list(read_dataset(["a"]))
    with pytest.raises(InputError, match="expected a dataset"):
        list(read_dataset(3))


def test_every_line_of_a_published_file(shared: Path) -> None:
    path = shared / "eval" / "roles-ewt" / "dev.jsonl.xz"
    found = tokens(path, field="words")
    assert len(found) == 1965
    assert found[3] == ("***",)


def test_no_torch() -> None:
    code = "import sys, elmokit.formats; print([m for m in ('torch', 'pyarrow', 'zstandard') if m in sys.modules])"
    assert json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout) == []
