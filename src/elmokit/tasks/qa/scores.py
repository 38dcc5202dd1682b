"""Scores of answers by the rules of SQuAD 1.1's own scorer (Rajpurkar et al. 2016, section 6.1).

Answers are compared in lower case, without ASCII punctuation, without the articles a, an and the, and with white space
settled, in this order. Each question counts the best of its gold answers. Two answers of which nothing is left match
exactly, but share no word: their F1 is 0.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmokit.errors import InputError

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """Means over questions, from 0 to 1."""

    f1: float
    exact: float
    questions: int


def normalise_answer(text: str) -> str:
    """What is compared of an answer."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """1 where nothing but case, punctuation, articles and spaces differ, else 0."""
    return float(normalise_answer(gold) == normalise_answer(predicted))


def answer_f1(gold: str, predicted: str) -> float:
    """The overlap of the two bags of words."""
    true, guessed = normalise_answer(gold).split(), normalise_answer(predicted).split()
    same = (Counter(true) & Counter(guessed)).total()
    if not same:
        return 0.0
    precision, recall = same / len(guessed), same / len(true)
    return 2 * precision * recall / (precision + recall)


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str | None]) -> AnswerScores:
    """The gold answers of each question and what was answered; a question left without an answer (None) counts 0."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} questions, but {len(predicted)} answers")
    if bare := [k for k, answers in enumerate(gold) if not answers]:
        raise InputError(f"question {bare[0]} has no gold answer to be scored by; expected at least one")
    pairs = list(zip(gold, predicted, strict=True))

    def mean(score: Callable[[str, str], float]) -> float:
        best = (max(score(true, guess) for true in answers) for answers, guess in pairs if guess is not None)
        return sum(best) / len(pairs) if pairs else 0.0

    return AnswerScores(mean(answer_f1), mean(exact_match), len(pairs))
