"""English sentences, by example."""

import pytest

from elmokit.text import load_tokenizer

CASES = [
    ["He came.", "She left!", "Why?", "Nobody knows."],
    ["Mr. J. R. Smith met Dr. Jones of the U.S. Army on Jan. 5 at No. 10.", "Then he left."],
    ["She works for Acme Inc. in Boston.", "He works for Acme Inc.", "The firm is old."],
    ["They arrived at 5 p.m. Monday.", "We came at 6 p.m.", "It rained."],
    ["Apples, pears, etc. are fruit."],
    ['"Why?" he asked.', '"Because!" said she.', "“So be it.”", "He left."],
    ["Oh! the pain.", "(He fell.)", "[Exit.]", "It hurt."],
    ["Well ... maybe not.", "Or maybe...", "Yes.", "Wait . . . what?"],
    ["It cost 3.5 dollars in 1999.", "25 people came.", "See www.a.com for p. 5."],
    ["1. Wash your hands.", "2. Dry them.", "P.S. Do it twice."],
    ["you should go there.", "it is nice.", "really?", "yes"],
    ["I like it. :)", "You too! ;-)", "OK."],
    ["Is it so?!", "Yes!!!", "no way"],
    ["You and I.", "We two."],
    ["No, I don't.", "Tom's is the dog's.", "Ask Jones about it."],
    ["'It isn't.'", "Nobody spoke."],
]


@pytest.mark.parametrize("expected", CASES)
def test_sentences_of_a_line(expected: list[str]) -> None:
    text = " ".join(expected)
    sentences = load_tokenizer("english").split(text)
    assert [s.text for s in sentences] == expected
    assert [text[s.start : s.start + len(s.text or "")] for s in sentences] == expected


LINES = [
    ("Early life\nHe was born in a small town\nnear Paris.\nHe left.", 3),  # a heading, then wrapped prose
    ("One\n\nTwo and\nthree", 2),  # a blank line ends, a single one does not
    ("One \n \t\n two", 2),
    ("We need\n- bread\n- milk\n* eggs\n3. nuts\nb) figs", 6),  # list items
    ("He saw that in the year of our Lord eighteen hundred\nJohn had left.", 1),  # too long for a heading
    ("He had, with\nJohn, left,\nBut not yet.", 2),  # a mark at the end of a line goes on
    ("Dear Sir,\nThank you.", 1),
    ("It ended.\r\n\r\nThen it began", 2),
    ("Mr.\n\nSmith", 2),  # a blank line always ends
]


@pytest.mark.parametrize(("text", "count"), LINES)
def test_line_breaks(text: str, count: int) -> None:
    assert len(load_tokenizer("english").split(text)) == count


def test_sentences_know_their_place() -> None:
    first, second = load_tokenizer("english").split("  It’s here.  \n\n Don't go ")
    assert (first.text, first.start, first.tokens) == ("It’s here.", 2, ("It", "’s", "here", "."))
    assert (second.text, second.start, second.offsets) == ("Don't go", 17, ((0, 2), (2, 5), (6, 8)))


@pytest.mark.parametrize("blank", ["", " ", "\n\n \t\n"])
def test_blank_text_has_no_sentence(blank: str) -> None:
    assert load_tokenizer("english").split(blank) == []
    assert load_tokenizer("english").tokenize(blank).tokens == ()
