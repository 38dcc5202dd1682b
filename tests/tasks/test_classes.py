"""Accuracy and macro F1 by hand-worked cases and by scikit-learn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.classes import ClassPrediction, count_classes, list_classes, score_classes
from elmokit.tasks.classify.task import TextExample
from elmokit.text import Sentence


def example(label: str | None) -> TextExample:
    return TextExample(Sentence.of(["word"]), label)


def predicted(label: str) -> ClassPrediction:
    return ClassPrediction(label, {label: 1.0})


def test_scores_worked_by_hand() -> None:
    counts = count_classes(["a", "a", "b", "c"], ["a", "b", "b", "b"])
    assert counts.accuracy == 0.5
    assert counts.classes["a"].f1 == pytest.approx(2 / 3)  # precision 1, recall 1/2
    assert counts.classes["b"].f1 == pytest.approx(0.5)  # precision 1/3, recall 1
    assert counts.classes["c"].f1 == 0
    assert counts.macro_f1 == pytest.approx((2 / 3 + 0.5 + 0) / 3)
    assert count_classes([], []).macro_f1 == 0


LABELS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abce")), min_size=1, max_size=30)


@settings(max_examples=15)
@given(LABELS)
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    gold, found = [a for a, _ in pairs], [b for _, b in pairs]
    counts = count_classes(gold, found)
    assert counts.accuracy == pytest.approx(metrics.accuracy_score(gold, found))
    assert counts.macro_f1 == pytest.approx(metrics.f1_score(gold, found, average="macro", zero_division=0))


def test_accuracy_comes_first() -> None:
    scores = score_classes([example("a"), example("b")], [predicted("a"), predicted("a")])
    assert list(scores.items()) == [("accuracy", 0.5), ("macro_f1", pytest.approx(1 / 3))]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="2 texts have labels, but 1 predictions"):
        count_classes(["a", "b"], ["a"])
    with pytest.raises(InputError, match="1 of 2 examples have no label"):
        score_classes([example("a"), example(None)], [predicted("a"), predicted("a")])
    with pytest.raises(InputError, match=r"have the labels \['a'\]; expected two or more"):
        list_classes([example("a"), example("a")])
