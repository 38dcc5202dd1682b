"""SQuAD 1.1's rules on cases worked by hand."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.qa.scores import answer_f1, exact_match, normalise_answer, score_answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Denver Broncos!", "denver broncos"),
        ("an apple a day", "apple day"),
        ("A", ""),
        ("the the", ""),
        ("Theatre", "theatre"),  # an article only as a word of its own
        ("U.S.", "us"),  # punctuation goes without leaving a space
        ("the-end", "theend"),  # so that what was an article may be one no longer
        ("a.", ""),
        ("“The”", "“ ”"),  # only ASCII punctuation goes
        ("a\u00a0b\tc", "b c"),
        ("£1,000", "£1000"),
        ("Straße İ", "straße i̇"),
    ],
)
def test_normalising(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


def test_exact_match_and_f1_by_hand() -> None:
    assert exact_match("the Denver Broncos", "Denver Broncos.") == 1.0
    assert exact_match("Denver Broncos", "Broncos Denver") == 0.0
    assert answer_f1("Denver Broncos", "Broncos Denver") == 1.0  # order does not count
    # 2 of 3 predicted words, 2 of 4 gold words
    assert answer_f1("one two three four", "one two five") == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    # a word counts as often as both have it: 1 same, precision 1/2, recall 1
    assert answer_f1("no", "no no") == pytest.approx(2 / 3)
    assert answer_f1("yes", "no") == 0.0


def test_answers_of_which_nothing_is_left() -> None:
    assert (exact_match("the", "a"), answer_f1("the", "a")) == (1.0, 0.0)
    assert (exact_match("", "word"), answer_f1("", "word")) == (0.0, 0.0)
    assert (exact_match("word", ""), answer_f1("word", "")) == (0.0, 0.0)


def test_the_best_gold_answer_counts_for_each_score_by_itself() -> None:
    # exact: none. F1: "one two" against "one" 2/3, against "one two three" 4/5
    scores = score_answers([["one", "one two three"]], ["one two"])
    assert (scores.exact, scores.f1) == (0.0, pytest.approx(0.8))


def test_means_over_questions_and_questions_without_an_answer() -> None:
    scores = score_answers([["x"], ["y y", "y"], ["z"]], ["X!", "y q", None])
    assert scores.exact == pytest.approx(1 / 3)
    assert scores.f1 == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert scores.questions == 3
    assert score_answers([], []).f1 == 0.0


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(InputError, match="2 questions, but 1"):
        score_answers([["a"], ["b"]], ["a"])
    with pytest.raises(InputError, match="question 1 has no gold answer"):
        score_answers([["a"], []], ["a", "b"])
