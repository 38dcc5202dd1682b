"""SCWS and WiC: the words in their places."""

from pathlib import Path

import pytest

from elmokit.analysis.pair_files import read_pairs, read_scws, read_wic
from elmokit.errors import FormatError
from elmokit.formats import read_lines

SCWS = (
    "1\tbank\tn\tNew York\tn\tIt rained . He sat on the <b> bank </b> . So what\tIn <b> New York </b> it is\t3.5\t4\t3"
)
WIC = "T\tplay\tV\t1-0\tThey play well .\tPlay it !"


def test_scws_takes_the_sentence_with_the_word() -> None:
    (pair,) = read_scws([SCWS, ""], name="scws")
    assert pair.first.sentence.tokens == ("He", "sat", "on", "the", "bank", ".")
    assert (pair.first.start, pair.first.end) == (4, 5)
    assert pair.second.sentence.tokens[pair.second.start : pair.second.end] == ("New", "York")
    assert pair.value == 3.5


def test_wic() -> None:
    (pair,) = read_wic([WIC], name="wic")
    assert [w.sentence.tokens[w.start : w.end] for w in (pair.first, pair.second)] == [("play",), ("Play",)]
    assert pair.value == 1
    assert read_wic([WIC.replace("T", "F", 1)], name="wic").__next__().value == 0


def test_which_is_told_by_the_file() -> None:
    assert read_pairs([SCWS], name="a")[0] == "scws"
    assert read_pairs([WIC], name="a")[0] == "wic"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (SCWS.replace("3.5", "much"), "line 1: 10 columns, expected 8 or more, the eighth a rating"),
        (SCWS.replace("</b> .", "."), "expected a context with one <b> word </b>"),
        (WIC.replace("1-0", "1"), "expected T or F, a word"),
        (WIC.replace("1-0", "1-9"), "word 9 of a sentence of 3 words"),
        ("", "is empty"),
    ],
)
def test_what_is_broken_is_told(line: str, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        read_pairs([line], name="a")


def test_the_real_ones(shared: Path) -> None:
    kind, scws = read_pairs(read_lines(shared / "eval/scws/ratings.txt.xz"), name="scws")
    assert (kind, len(scws)) == ("scws", 2003)
    assert all(0 <= pair.value <= 10 for pair in scws)
    for part, size in (("train", 5428), ("dev", 638)):
        kind, wic = read_pairs(read_lines(shared / f"eval/wic/{part}.tsv.xz"), name=part)
        assert (kind, len(wic)) == ("wic", size)
        assert sum(pair.value for pair in wic) == size / 2  # the classes are even
