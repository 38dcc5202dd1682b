"""The CoNLL-2005 rules on cases worked by hand."""

import pytest

from elmokit.errors import InputError
from elmokit.tasks.roles.scores import Argument, read_arguments, score_roles


def tags(text: str) -> list[str]:
    return text.split()


def test_continuations_join_the_last_argument_of_their_role() -> None:
    found = read_arguments(tags("B-A1 I-A1 B-V B-C-A1 O B-A1 B-C-A1 B-C-A1"))
    assert found == [
        Argument("A1", ((0, 2), (3, 4))),
        Argument("V", ((2, 3),)),
        Argument("A1", ((5, 6), (6, 7), (7, 8))),
    ]


def test_a_continuation_of_nothing_is_an_argument_and_may_be_continued() -> None:
    found = read_arguments(tags("B-C-A1 B-V B-C-A1 B-C-A0"))
    assert found == [Argument("A1", ((0, 1), (2, 3))), Argument("V", ((1, 2),)), Argument("A0", ((3, 4),))]


def test_references_are_roles_of_their_own() -> None:
    assert [a.role for a in read_arguments(tags("B-A0 B-R-A0 B-V B-C-R-A0"))] == ["A0", "R-A0", "V"]
    assert read_arguments(tags("B-A0 B-R-A0 B-V B-C-R-A0"))[1].pieces == ((1, 2), (3, 4))


def test_the_predicate_does_not_count_nor_do_its_continuations() -> None:
    gold, predicted = [tags("B-A0 B-V B-A1 B-C-V")], [tags("B-A0 O B-A1 O")]
    scores = score_roles(gold, predicted)
    assert (scores.overall.gold, scores.overall.found, scores.overall.right) == (2, 2, 2)
    assert (scores.f1, scores.perfect) == (1.0, 1)
    assert set(scores.roles) == {"A0", "A1"}


def test_a_broken_argument_is_right_as_a_whole_or_not_at_all() -> None:
    gold = [tags("B-A1 B-V B-C-A1 O")]
    half = score_roles(gold, [tags("B-A1 B-V O O")])
    assert (half.overall.right, half.overall.found, half.overall.gold) == (0, 1, 1)
    apart = score_roles(gold, [tags("B-A1 B-V B-A1 O")])
    assert (apart.overall.right, apart.overall.found, apart.overall.gold) == (0, 2, 1)
    wide = score_roles(gold, [tags("B-A1 B-V B-C-A1 I-C-A1")])
    assert wide.overall.right == 0
    assert score_roles(gold, gold).overall.right == 1
    # a continuation that stands alone counts as the plain role
    lone = score_roles([tags("B-V B-A1")], [tags("B-V B-C-A1")])
    assert lone.overall.right == 1


def test_counts_by_hand() -> None:
    gold = [tags("B-A0 B-V B-A1 I-A1 B-AM-TMP"), tags("B-V B-A1 O O O"), tags("O B-V O O O")]
    predicted = [tags("B-A0 B-V B-A1 O B-AM-LOC"), tags("B-V B-A1 O O O"), tags("O B-V O O B-A0")]
    scores = score_roles(gold, predicted)
    # right: A0 and A1 of the second; found 3 + 1 + 1; gold 3 + 1
    assert (scores.overall.right, scores.overall.found, scores.overall.gold) == (2, 5, 4)
    assert scores.overall.precision == pytest.approx(2 / 5)
    assert scores.overall.recall == pytest.approx(2 / 4)
    assert scores.f1 == pytest.approx(2 * 0.4 * 0.5 / 0.9)
    assert (scores.perfect, scores.propositions) == (1, 3)
    assert scores.roles["A1"].right == 1
    assert scores.roles["AM-TMP"].found == 0
    empty = score_roles([], [])
    assert (empty.f1, empty.propositions) == (0.0, 0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="1 predicates, but predictions for 0"):
        score_roles([["O"]], [])
    with pytest.raises(InputError, match="predicate 0 has 1 labels, but 2"):
        score_roles([["O"]], [["O", "O"]])
