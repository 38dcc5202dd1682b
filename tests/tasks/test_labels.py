"""Span labels: worked examples of each scheme, every scheme written and read back, and scores worked by hand."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.labels import (
    PREFIXES,
    Scheme,
    Span,
    SpanCounts,
    convert_tags,
    label_accuracy,
    legal_transitions,
    list_labels,
    read_spans,
    score_spans,
    split_tag,
    write_tags,
)

# Two names of people side by side, a place, and two words that make one organisation.
SPANS = [Span(0, 2, "PER"), Span(2, 3, "PER"), Span(3, 4, "LOC"), Span(5, 7, "ORG")]
WRITTEN: dict[Scheme, str] = {
    "IOB1": "I-PER I-PER B-PER I-LOC O I-ORG I-ORG O",
    "IOB2": "B-PER I-PER B-PER B-LOC O B-ORG I-ORG O",
    "IOBES": "B-PER E-PER S-PER S-LOC O B-ORG E-ORG O",
}


@pytest.mark.parametrize("scheme", WRITTEN)
def test_worked_example(scheme: Scheme) -> None:
    tags = WRITTEN[scheme].split()
    assert read_spans(tags) == SPANS
    assert write_tags(SPANS, 8, scheme=scheme) == tags
    for other, written in WRITTEN.items():
        assert convert_tags(tags, other) == written.split()


@st.composite
def sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    spans, at = [], 0
    for gap, length, type in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("XY")))):
        spans.append(Span(at + gap, at + gap + length, type))
        at += gap + length
    return spans, at + draw(st.integers(0, 2))


@given(sentence=sentences(), scheme=st.sampled_from(list(PREFIXES)))
def test_what_is_written_is_read_and_legal(sentence: tuple[list[Span], int], scheme: Scheme) -> None:
    spans, length = sentence
    tags = write_tags(spans, length, scheme=scheme)
    assert read_spans(tags) == spans
    labels = list_labels("XY", scheme)
    legal = legal_transitions(labels, scheme)
    ids = [labels.index(tag) for tag in tags]
    if ids:
        assert legal.start[ids[0]]
        assert legal.end[ids[-1]]
    assert all(legal.step[a, b] for a, b in itertools.pairwise(ids))


@pytest.mark.parametrize("scheme", PREFIXES)
def test_legal_is_exactly_what_can_be_written(scheme: Scheme) -> None:
    """A sequence is legal if and only if reading and writing it again gives it back."""
    labels = list_labels("XY", scheme)
    legal = legal_transitions(labels, scheme)
    seen = set()
    for ids in itertools.product(range(len(labels)), repeat=3):
        tags = [labels[k] for k in ids]
        allowed = (
            legal.start[ids[0]] and legal.end[ids[-1]] and all(legal.step[a, b] for a, b in itertools.pairwise(ids))
        )
        assert allowed == (convert_tags(tags, scheme) == tags), tags
        seen.add(bool(allowed))
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("I-X I-X", [Span(0, 2, "X")]),  # begins without B
        ("O I-X", [Span(1, 2, "X")]),
        ("B-X I-Y", [Span(0, 1, "X"), Span(1, 2, "Y")]),  # the type changes inside
        ("I-X I-Y I-Y", [Span(0, 1, "X"), Span(1, 3, "Y")]),
        ("E-X E-X", [Span(0, 1, "X"), Span(1, 2, "X")]),  # ends twice
        ("E-X I-X", [Span(0, 1, "X"), Span(1, 2, "X")]),  # goes on behind an end
        ("S-X I-X E-X", [Span(0, 1, "X"), Span(1, 3, "X")]),
        ("B-X S-X", [Span(0, 1, "X"), Span(1, 2, "X")]),  # never ended
        ("B-X O E-X", [Span(0, 1, "X"), Span(2, 3, "X")]),
        ("B I O B", [Span(0, 2, ""), Span(3, 4, "")]),  # without types
        ("B-A-B I-A-B", [Span(0, 2, "A-B")]),  # the first hyphen cuts
        ("O O", []),
        ("", []),
    ],
)
def test_broken_labels_are_read_as_the_scorer_does(tags: str, spans: list[Span]) -> None:
    assert read_spans(tags.split()) == spans


@pytest.mark.parametrize("tag", ["X-PER", "", "O-PER", "PER", "b-PER"])
def test_other_labels_are_refused(tag: str) -> None:
    with pytest.raises(InputError, match="expected O, or B-"):
        split_tag(tag)


def test_overlap_and_unknown_schemes_are_refused() -> None:
    with pytest.raises(InputError, match="overlaps"):
        write_tags([Span(0, 2, "X"), Span(1, 3, "X")], 3, scheme="IOB2")
    with pytest.raises(InputError, match="leaves the sentence of 1 words"):
        write_tags([Span(0, 2, "X")], 1, scheme="IOB2")
    with pytest.raises(InputError, match="no label scheme 'BIO'"):
        write_tags([], 1, scheme="BIO")  # type: ignore[arg-type]


def score(gold: str, predicted: str) -> SpanCounts:
    return score_spans([gold.split()], [predicted.split()]).overall


@pytest.mark.parametrize(
    ("gold", "predicted", "counts"),
    [
        ("B-X I-X O", "B-X I-X O", SpanCounts(1, 1, 1)),
        ("B-X I-X O", "B-X O O", SpanCounts(1, 1, 0)),  # too short
        ("B-X I-X O", "B-X I-X I-X", SpanCounts(1, 1, 0)),  # too long
        ("B-X I-X O", "B-Y I-Y O", SpanCounts(1, 1, 0)),  # the right place, another type
        ("B-X I-X O", "I-X I-X O", SpanCounts(1, 1, 1)),  # begun with I: the scorer does not mind
        ("B-X I-X I-X", "B-X B-X I-X", SpanCounts(2, 1, 0)),  # cut in two
        ("B-X B-X", "B-X I-X", SpanCounts(1, 2, 0)),  # two made one
        ("I-X I-X B-X", "B-X E-X S-X", SpanCounts(2, 2, 2)),  # IOB1 against IOBES
        ("B-X I-X", "B-X I-Y", SpanCounts(2, 1, 0)),  # a change of type inside is two spans
        ("O O", "O O", SpanCounts(0, 0, 0)),
    ],
)
def test_counts(gold: str, predicted: str, counts: SpanCounts) -> None:
    assert score(gold, predicted) == counts


def test_sentences_do_not_run_into_each_other() -> None:
    gold = [["B-X"], ["I-X"]]
    assert score_spans(gold, [["B-X"], ["B-X"]]).overall == SpanCounts(2, 2, 2)


def test_precision_recall_and_f1_by_type() -> None:
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC"], ["O", "B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"], ["O", "B-PER"]]
    scores = score_spans(gold, predicted)
    # found: PER, LOC, LOC, PER; gold: PER, LOC, LOC, ORG; right: PER and the first LOC
    assert scores.overall == SpanCounts(4, 4, 2)
    assert scores.f1 == pytest.approx(0.5)
    assert scores.types == {"LOC": SpanCounts(2, 2, 1), "ORG": SpanCounts(0, 1, 0), "PER": SpanCounts(2, 1, 1)}
    assert scores.types["PER"].precision == pytest.approx(0.5)
    assert scores.types["PER"].recall == 1.0
    assert scores.types["PER"].f1 == pytest.approx(2 / 3)
    assert (scores.types["ORG"].precision, scores.types["ORG"].recall, scores.types["ORG"].f1) == (0.0, 0.0, 0.0)
    assert scores.accuracy == pytest.approx(5 / 8)


def test_accuracy_compares_labels_as_they_stand() -> None:
    assert label_accuracy([["NOUN", "VERB"], ["DET"]], [["NOUN", "NOUN"], ["DET"]]) == pytest.approx(2 / 3)
    assert label_accuracy([], []) == 0.0


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="sentence 1 has 2 labels, but 1 were predicted"):
        score_spans([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="1 sentences, but predictions for 2"):
        score_spans([["O"]], [["O"], ["O"]])
