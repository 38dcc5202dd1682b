"""Both column formats are read, what is wrong in them is told with file and line, and what was written reads back."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import FormatError
from elmokit.tasks.coref.data import bracket_column, parse_coref, read_coref, write_coref
from elmokit.tasks.coref.document import CorefDocument, Mention, order_clusters, place_sentences, split_tokens
from elmokit.text import load_tokenizer

ENGLISH = load_tokenizer("english")
BRACKETED = """#begin document (one); part 0
0	Ann	(1)
1	saw	_
2	her	(2(1)
3	dog	2)
4	.	_
5	It	(2)
6	barked	_
7	.	_
#end document
"""
CONLL_2012 = """#begin document (bc/cctv/00/cctv_0000); part 001
bc/cctv/00/cctv_0000   1   0   -LRB-   NNP   (TOP*   -   -   -   Ann#1   (PERSON)   (ARG0*)   -
bc/cctv/00/cctv_0000   1   1       I   NNP      *    -   -   -   Ann#1        *        *    (0)
bc/cctv/00/cctv_0000   1   2      /.     .      *)   -   -   -   Ann#1        *        *     -

bc/cctv/00/cctv_0000   1   0     You   PRP   (TOP*   -   -   -   Bob          *    (0|(12
bc/cctv/00/cctv_0000   1   1      -s   POS      *)   -   -   -   Bob          *   12)|0)

#end document
"""


def parse(text: str) -> list[CorefDocument]:
    return list(parse_coref(text.splitlines(), name="made.conll", splitter=ENGLISH))


def test_the_bracketed_format_is_split_into_sentences() -> None:
    (document,) = parse(BRACKETED)
    assert document.name == "one"
    assert [sentence.tokens for sentence in document.sentences] == [
        ("Ann", "saw", "her", "dog", "."),
        ("It", "barked", "."),
    ]
    assert document.clusters == (((0, 1), (2, 3)), ((2, 4), (5, 6)))
    assert document.speakers is None
    assert document.genre is None
    assert document.notes == ()
    text = "Ann saw her dog . It barked ."
    assert [text[a:b] for a, b in document.offsets] == list(document.words)
    assert document.characters(Mention(2, 4)) == (8, 15)
    assert document.text_of(Mention(2, 4)) == "her dog"
    assert document.starts == (0, 5, 8)


def test_conll_2012_has_sentences_speakers_and_a_genre() -> None:
    (document,) = parse(CONLL_2012)
    assert [sentence.tokens for sentence in document.sentences] == [("(", "I", "."), ("You", "-s")]
    assert document.clusters == (((1, 2), (3, 5)), ((3, 5),))
    assert document.speakers == ("Ann#1", "Ann#1", "Ann#1", "Bob", "Bob")
    assert document.genre == "bc"
    assert document.part == "001"


def test_speakers_that_are_not_told_are_none() -> None:
    untold = CONLL_2012.replace("Ann#1", "-").replace("Bob", "-")
    assert parse(untold)[0].speakers is None


def test_sentence_breaks_of_a_bracketed_file_are_kept() -> None:
    (document,) = parse(BRACKETED.replace("1\tsaw", "\n1\tsaw"))
    assert [len(sentence) for sentence in document.sentences] == [1, 7]
    assert document.clusters == parse(BRACKETED)[0].clusters


def test_several_documents_and_an_empty_one() -> None:
    documents = parse(BRACKETED + "\n# a remark\n" + "#begin document (two)\n#end document\n")
    assert [document.name for document in documents] == ["one", "two"]
    assert len(documents[1]) == 0
    assert documents[1].sentences == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BRACKETED.replace("1\tsaw\t_", "1\tsaw"), r"made.conll, line 3: '1\\tsaw'; expected 3 columns as on"),
        (BRACKETED.replace("0\tAnn\t(1)", "0\tAnn"), r"made.conll, line 2: .* expected 3 columns, or 12 and more"),
        (BRACKETED.replace("1\tsaw", "x\tsaw"), r"made.conll, line 3: .* word number 1 or 0, not 'x'"),
        (BRACKETED.replace("1\tsaw", "2\tsaw"), r"made.conll, line 3: .* word number 1 or 0, not '2'"),
        (BRACKETED.replace("(2(1)", "(2[1]"), r"made.conll, line 4: '\(2\[1\]'; expected mentions such as"),
        (BRACKETED.replace("(2(1)", "(2(1)7"), r"made.conll, line 4: .* in the last column"),
        (BRACKETED.replace("#end document\n", ""), r"made.conll, line 1: .* has no '#end document'"),
        (BRACKETED.replace("#end document\n", "") + BRACKETED, r"line 10: '#begin .* the document of line 1"),
        (BRACKETED.split("\n", 1)[1], r"made.conll, line 1: .* expected a '#begin document"),
        ("#end document", r"made.conll, line 1: .* expected a '#begin document"),
        (CONLL_2012.replace("   *     -\n", "\n"), r"made.conll, line 4: .* columns"),
    ],
)
def test_malformed_lines_are_refused_with_their_number(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(text)


def test_what_can_be_mended_is_noted() -> None:
    (document,) = parse(BRACKETED.replace("2)", "3)").replace("saw", ""))
    assert document.notes == (
        "made.conll, line 3: has no word; read as '\ufffd'",
        "made.conll, line 5: '3)' closes nothing; left out",
        "made.conll, line 4: '(2' is not closed; left out",
    )
    assert document.words[1] == "\ufffd"
    assert document.clusters == (((0, 1), (2, 3)), ((5, 6),))


def test_tokens_are_split_where_their_text_would_be() -> None:
    text = '" Mr. Li did n\'t . " He ( too ) left . What is $ 5 ?'
    tokens = text.split()
    split = split_tokens(tokens, ENGLISH)
    assert [" ".join(sentence) for sentence in split] == [
        '" Mr. Li did n\'t . "',
        "He ( too ) left .",
        "What is $ 5 ?",
    ]
    assert split_tokens([], ENGLISH) == []


nested = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 3)), max_size=12)


@given(nested)
def test_what_was_written_reads_back(given_spans: list[tuple[int, int, int]]) -> None:
    homes: dict[Mention, int] = {}
    for start, length, cluster in given_spans:
        span = Mention(start, min(start + length, 10))
        crosses = any(a < span.start < b < span.end or span.start < a < span.end < b for a, b in homes)
        if not crosses:
            homes[span] = cluster
    clusters = order_clusters([m for m, k in homes.items() if k == c] for c in set(homes.values()))
    sentences = place_sentences([("a", "b", "c"), ("d", "e", "f", "g"), ("h", "i", "j")])
    document = CorefDocument("bn/x", sentences, speakers=("S",) * 10, genre="bn", part="3")
    lines = list(write_coref([(document, clusters)]))
    (again,) = parse_coref(lines, name="written", splitter=ENGLISH)
    assert again == CorefDocument("bn/x", sentences, clusters, ("S",) * 10, "bn", "3")


def test_the_longer_mention_opens_first_and_closes_last() -> None:
    column = bracket_column([(Mention(0, 3), Mention(1, 3)), (Mention(0, 2), Mention(2, 3))], 3)
    assert column == ["(0|(1", "1)|(0", "0)|0)|(1)"]


def test_ontogum_is_read_whole(shared: Path) -> None:
    documents = read_coref(shared / "eval" / "coref-ontogum" / "dev.conll.xz")
    assert len(documents) == 38
    assert sum(map(len, documents)) == 35_993
    assert sum(len(cluster) for document in documents for cluster in document.clusters or ()) == 4_489
    assert [note for document in documents for note in document.notes if "line 19060: has no word" not in note] == []
    # Sentences end where they should: hardly a mention is cut by one.
    cut = sum(
        any(mention.start < start < mention.end for start in document.starts)
        for document in documents
        for cluster in document.clusters or ()
        for mention in cluster
    )
    assert cut <= 5


def test_a_quotation_mark_opens_and_closes() -> None:
    heard: list[str] = []

    class Listening:
        def split(self, text: str) -> Any:
            heard.append(text)
            return ENGLISH.split(text)

    tokens = ["He", "said", '"', "No", ".", '"', "and", '"', "Yes", '"', "at", "once"]
    assert split_tokens(tokens, Listening()) == [tokens]  # type: ignore[arg-type]
    assert heard == ['He said "No." and "Yes" at once']
