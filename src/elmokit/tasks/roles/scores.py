"""Scores of semantic roles by the rules of the CoNLL-2005 shared task's scorer.

An argument counts when its words and its role are right. A span whose role begins with C- continues the last argument
of that role before it, and the two count as one argument, right only as a whole; where there is nothing to continue, it
is an argument of its own without the prefix. References (R-) are roles like any other. The predicate itself, V with its
continuations, is left out. A proposition is perfect when no argument is missing and none is too many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.errors import InputError
from elmokit.tasks.labels import SpanCounts, count_types, read_spans

PREDICATE = "V"
CONTINUES = "C-"


class Argument(NamedTuple):
    """The role and the words: (start, end) of each of its pieces, in order, the end not included."""

    role: str
    pieces: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class RoleScores:
    """All roles together, each role, and how many propositions are perfect."""

    overall: SpanCounts
    roles: dict[str, SpanCounts]
    perfect: int
    propositions: int

    @property
    def f1(self) -> float:
        return self.overall.f1


def read_arguments(tags: Sequence[str]) -> list[Argument]:
    """The arguments of one predicate, its own span V among them, in the order in which they begin."""
    found: list[Argument] = []
    last: dict[str, int] = {}  # where the latest argument of each role is
    for start, end, type in read_spans(tags):
        role = type.removeprefix(CONTINUES)
        if role != type and role in last:
            k = last[role]
            found[k] = Argument(role, (*found[k].pieces, (start, end)))
            continue
        last[role] = len(found)
        found.append(Argument(role, ((start, end),)))
    return found


def score_roles(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> RoleScores:
    """The labels of each predicate's sentence, word by word, on both sides."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} predicates, but predictions for {len(predicted)}")
    pairs = []
    for number, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(guessed):
            raise InputError(f"predicate {number} has {len(true)} labels, but {len(guessed)} were predicted")
        wanted = {argument for argument in read_arguments(true) if argument.role != PREDICATE}
        given = {argument for argument in read_arguments(guessed) if argument.role != PREDICATE}
        pairs.append((wanted, given))
    overall, roles = count_types(pairs, lambda argument: argument.role)
    return RoleScores(overall, roles, sum(wanted == given for wanted, given in pairs), len(gold))
