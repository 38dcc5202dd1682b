"""Span scores, worked by hand with the rules of the CoNLL shared tasks' scorer."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.metrics import SpanCounts, label_accuracy, score_spans


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
