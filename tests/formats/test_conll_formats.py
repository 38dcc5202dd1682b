import lzma
from pathlib import Path

import pytest

from elmokit.errors import FormatError
from elmokit.formats import read_columns, read_conllu, read_lines


def word(identity: str, form: str, misc: str = "_") -> str:
    return "\t".join([identity, form, *["_"] * 7, misc])


MULTIWORD = [
    "# sent_id = 1",
    "# text = Don't eat du pain.",
    word("1-2", "Don't"),
    word("1", "Do"),
    word("2", "n't"),
    word("3", "eat"),
    word("3.1", "eaten"),
    word("4-5", "du"),
    word("4", "de"),
    word("5", "le"),
    word("6", "pain", "SpaceAfter=No"),
    word("7", "."),
]
SPANS = ((0, 2), (2, 5), (6, 9), (10, 12), (10, 12), (13, 17), (17, 18))


@pytest.mark.parametrize("text_line", [True, False])
def test_multiword_and_empty_tokens(text_line: bool) -> None:
    lines = [line for line in MULTIWORD if text_line or "text" not in line]
    first, second = read_conllu([*lines, "", *lines], name="a")
    assert first.sentence.tokens == ("Do", "n't", "eat", "de", "le", "pain", ".")
    assert first.sentence.text == "Don't eat du pain."
    assert first.sentence.offsets == SPANS
    assert second.sentence == first.sentence
    assert (first.line, second.line) == (1, len(lines) + 2)
    assert [row[0] for row in first.rows] == list("1234567")
    assert first.comments[0] == "# sent_id = 1"


def test_text_that_does_not_hold_the_words_has_no_offsets() -> None:
    (parsed,) = read_conllu(["# text = something else", word("1", "word")], name="a")
    assert parsed.sentence.text == "something else"
    assert parsed.sentence.offsets is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tword", r"a\.conllu, line 2: has 2 columns"),
        (word("x", "word"), "line 2.*'x'"),
        (word("3", "word"), "word number 3, expected 1"),
        (word("1-4", "word"), "ends at word 4"),
        (word("2-1", "word"), "word number 2-1"),
    ],
)
def test_malformed_conllu(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        list(read_conllu(["# a comment", line], name="a.conllu"))


def test_columns() -> None:
    lines = ["-DOCSTART- -X- O", "", "The  DT O ", "dog NN B-X", " ", "", "-DOCSTART- -X- O", "Ab NN O"]
    first, second = read_columns(lines, name="a")
    assert first.column(2) == ("O", "B-X")
    assert first.sentence.tokens == ("The", "dog")
    assert (first.line, first.document, second.line, second.document) == (3, 1, 8, 2)


def test_columns_between_tabs_keep_spaces() -> None:
    (found,) = read_columns(["New York\tB-LOC", "\u00a0\tO"], name="a")
    assert found.rows == (("New York", "B-LOC"), ("\u00a0", "O"))


@pytest.mark.parametrize("line", ["only", "a b c", "\tO"])
def test_malformed_columns(line: str) -> None:
    with pytest.raises(FormatError, match=r"a\.conll, line 2: has"):
        list(read_columns(["word O", line], name="a.conll"))


def test_a_format_with_its_words_elsewhere_is_named() -> None:
    with pytest.raises(FormatError, match=r"a\.conll, line 1: begins a document of CoNLL-2012"):
        list(read_columns(["#begin document (a); part 000", "a 0 0 Ann"], name="a.conll"))


@pytest.mark.parametrize(
    ("name", "sentences", "width"),
    [
        ("ner-conll2003/dev.txt.xz", 3250, 4),
        ("ner-wnut17/dev.txt.xz", 1009, 2),
        ("ner-disease/dev.tsv.xz", 923, 2),
        ("chunk-conll2000/dev.txt.xz", 1000, 3),
    ],
)
def test_published_columns(shared: Path, name: str, sentences: int, width: int) -> None:
    found = list(read_columns(read_lines(shared / "eval" / name), name=name))
    assert len(found) == sentences
    assert {len(row) for sentence in found for row in sentence.rows} == {width}


@pytest.mark.parametrize(
    ("name", "count"), [("pos-ewt/en_ewt-ud-dev.conllu.xz", 2001), ("pos-vietnamese/vi_vtb-ud-dev.conllu.xz", 1123)]
)
def test_published_conllu(shared: Path, name: str, count: int) -> None:
    path = shared / "eval" / name
    found = [parsed.sentence for parsed in read_conllu(read_lines(path), name=name)]
    assert len(found) == count
    assert sum(sentence.offsets is None for sentence in found) <= count // 100
    for sentence in found:
        assert sentence.text is not None
        for token, (a, b) in zip(sentence.tokens, sentence.offsets or (), strict=False):
            assert sentence.text[a:b] == token or "ewt" in name
    # The text is given there; put together from SpaceAfter it comes out the same.
    lines = lzma.decompress(path.read_bytes()).decode().split("\n")
    bare = [line for line in lines if not line.startswith("# text")]
    rebuilt = [parsed.sentence.text for parsed in read_conllu(bare, name=name)]
    assert sum(a.text == b for a, b in zip(found, rebuilt, strict=True)) > 0.98 * count
