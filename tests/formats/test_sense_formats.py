"""SemCor's columns, the all-words XML and WordNet's sense index."""

from pathlib import Path

import pytest

from elmokit.analysis.sense_files import (
    SenseInstance,
    lemma_of,
    read_all_words,
    read_semcor,
    read_sense_index,
)
from elmokit.errors import FormatError
from elmokit.formats import read_lines

INDEX = """bank%1:14:00:: 08420278 2 20
bank%1:17:01:: 09213565 1 25
take_place%2:30:00:: 00339934 1 33
red%5:00:01:chromatic:00 00381097 1 36"""

SEMCOR = """# sent_id = a.s1
The\tthe\tDT\t_
Grand_Banks\tbank\tNNP\tbank%1:17:01:: bank%1:14:00::
took_place\ttake_place\tVB\ttake_place%2:30:00::
#\t_\t_\t_
_\t_\t_\t_

Red\tred\tJJ\tred%9:99:99:: red%5:00:01:chromatic:00
lost\tlose\tVB\tlose%2:99:00::
"""

XML = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en"><text id="d0"><sentence id="d0.s0">
<wf lemma="at" pos="ADP">At</wf>
<instance id="d0.s0.t0" lemma="Take_place" pos="VERB">took place</instance>
<wf lemma="&amp;" pos=".">&amp;</wf>
<instance id="d0.s0.t1" lemma="red" pos="ADJ">red</instance>
</sentence></text></corpus>
"""
GOLD = "d0.s0.t0 take_place%2:30:00::\nd0.s0.t1 red%5:00:01:chromatic:00 red%3:00:01::\n"


def test_index() -> None:
    index = read_sense_index(INDEX.splitlines(), name="index.sense")
    assert index.first == {
        ("bank", "n"): "bank%1:17:01::",
        ("take_place", "v"): "take_place%2:30:00::",
        ("red", "a"): "red%5:00:01:chromatic:00",
    }
    assert index.numbers["bank%1:14:00::"] == 2
    assert "bank%1:14:00::" in index
    assert "bank%1:14:01::" not in index


def test_semcor_splits_multiwords_and_drops_unknown_keys() -> None:
    index = read_sense_index(INDEX.splitlines(), name="index.sense")
    first, second = read_semcor(SEMCOR.splitlines(), name="semcor", known=index)
    assert first.sentence.tokens == ("The", "Grand", "Banks", "took", "place", "#", "_")
    assert first.instances == (
        SenseInstance(1, 3, ("bank", "n"), ("bank%1:17:01::", "bank%1:14:00::")),
        SenseInstance(3, 5, ("take_place", "v"), ("take_place%2:30:00::",)),
    )
    assert second.instances == (SenseInstance(0, 1, ("red", "a"), ("red%5:00:01:chromatic:00",)),)


def test_all_words(tmp_path: Path) -> None:
    data, gold = tmp_path / "data.xml", tmp_path / "gold.txt"
    data.write_text(XML)
    gold.write_text(GOLD)
    (only,) = read_all_words(data, gold)
    assert only.sentence.tokens == ("At", "took", "place", "&", "red")
    assert only.instances == (
        SenseInstance(1, 3, ("take_place", "v"), ("take_place%2:30:00::",), "d0.s0.t0"),
        SenseInstance(4, 5, ("red", "a"), ("red%5:00:01:chromatic:00", "red%3:00:01::"), "d0.s0.t1"),
    )


@pytest.mark.parametrize(
    ("xml", "gold", "message"),
    [
        (XML.replace("</sentence>", ""), GOLD, r"data.xml, line 7: not well-formed XML"),
        (XML.replace('pos="VERB"', 'pos="X"'), GOLD, r"'d0.s0.t0' has no words or part of speech 'X'"),
        (XML, GOLD.splitlines()[0], r"'d0.s0.t1' has no answer in .*gold.txt"),
        (XML, "\n", r"gold.txt, line 1: '', expected"),
        (XML, "d0.s0.t0\n", r"gold.txt, line 1: 'd0.s0.t0', expected an instance's name and its sense keys"),
    ],
)
def test_malformed_all_words(tmp_path: Path, xml: str, gold: str, message: str) -> None:
    (tmp_path / "data.xml").write_text(xml)
    (tmp_path / "gold.txt").write_text(gold)
    with pytest.raises(FormatError, match=message):
        list(read_all_words(tmp_path / "data.xml", tmp_path / "gold.txt"))


def test_malformed_columns_and_keys() -> None:
    with pytest.raises(FormatError, match="semcor, line 2: has 3 columns"):
        list(read_semcor(["a\ta\tDT\t_", "b\tb\tDT"], name="semcor", known=()))
    with pytest.raises(FormatError, match="index, line 1: 'x 1 2', expected a sense key and three numbers"):
        read_sense_index(["x 1 2"], name="index")
    with pytest.raises(FormatError, match="index, line 1: 'bank' is not a sense key"):
        read_sense_index(["bank 1 1 2"], name="index")
    with pytest.raises(FormatError, match="'x%7:00:00::' is not a sense key"):
        lemma_of("x%7:00:00::")


def test_real_files(shared: Path) -> None:
    """The published number of instances, and the published score of the first sense on senseval2."""
    folder = shared / "eval" / "wsd"
    index = read_sense_index(read_lines(folder / "wordnet3.0_index.sense.xz"), name="index.sense")
    sentences = list(read_all_words(folder / "senseval2.data.xml.xz", folder / "senseval2.gold.key.txt.xz"))
    instances = [instance for sentence in sentences for instance in sentence.instances]
    right = sum(index.first[instance.lemma] in instance.keys for instance in instances)
    assert (len(sentences), len(instances), round(100 * right / len(instances), 1)) == (242, 2282, 66.8)
