"""Labels of spans, word by word: IOB1, IOB2 and IOBES, from each to each; and the scores of predicted labels.

IOB1   I-X in a span; B-X only where a span begins right behind another of the same type (CoNLL-2003)
IOB2   B-X where a span begins, I-X inside (CoNLL-2000)
IOBES  B-X begins, I-X inside, E-X ends; S-X is a span of one word

Labels are read and scored by the rules of the CoNLL shared tasks' scorer, also where they break their scheme. A span
counts when its first word, its last word and its type are right; precision, recall and F1 are over all spans of all
sentences, and 0 where there is nothing to divide by.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError, FormatError, InputError

Scheme = Literal["IOB1", "IOB2", "IOBES"]
OUTSIDE = "O"
T = TypeVar("T")
PREFIXES: dict[Scheme, str] = {"IOB1": "IB", "IOB2": "BI", "IOBES": "BIES"}


class Span(NamedTuple):
    """Words `start` to `end` (not included) and what they are; a type may be empty."""

    start: int
    end: int
    type: str


class Transitions(NamedTuple):
    """Which labels may begin a sequence, follow each other and end it."""

    start: NDArray[np.bool_]  # (K,)
    step: NDArray[np.bool_]  # (K, K), from row to column
    end: NDArray[np.bool_]  # (K,)


def split_tag(tag: str) -> tuple[str, str]:
    """`B-PER` as ("B", "PER"); the first hyphen cuts. A bare `B` is a span without a type."""
    prefix, _, type = tag.partition("-")
    if prefix not in ("O", "B", "I", "E", "S") or (prefix == OUTSIDE and tag != OUTSIDE):
        raise InputError(f"label {tag!r} not understood; expected O, or B-, I-, E- or S- and a type")
    return prefix, type


def read_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, in any of the schemes.

    Where the labels break their scheme, as a network's can, this is how the shared tasks' scorer reads them: any label
    but O goes on with the span before it if that has its type and has not ended, and begins a span if not.
    """
    spans: list[Span] = []
    start, before, type_before = 0, OUTSIDE, ""
    for k, tag in enumerate(tags):
        prefix, type = split_tag(tag)
        begins = prefix in "BS" or before in "OES" or type != type_before
        if before != OUTSIDE and (prefix == OUTSIDE or begins):
            spans.append(Span(start, k, type_before))
        if prefix != OUTSIDE and begins:
            start = k
        before, type_before = prefix, type
    if before != OUTSIDE:
        spans.append(Span(start, len(tags), type_before))
    return spans


def write_tags(spans: Iterable[Span], length: int, *, scheme: Scheme) -> list[str]:
    """The labels of a sentence of `length` words; spans must not overlap."""
    if scheme not in PREFIXES:
        raise InputError(f"no label scheme {scheme!r}; expected one of {', '.join(PREFIXES)}")
    tags = [OUTSIDE] * length
    behind, last = 0, None  # where the span before ended, and its type
    for start, end, type in sorted(spans):
        if not behind <= start < end <= length:
            raise InputError(f"span {start}:{end} overlaps another or leaves the sentence of {length} words")
        for k in range(start, end):
            prefix = _prefix(k - start, end - start, touching=start == behind and type == last, scheme=scheme)
            tags[k] = f"{prefix}-{type}" if type else prefix
        behind, last = end, type
    return tags


def convert_tags(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans in another scheme."""
    return write_tags(read_spans(tags), len(tags), scheme=scheme)


def list_labels(types: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """O and all labels of these types, in a fixed order."""
    return (
        OUTSIDE,
        *(f"{prefix}-{type}" if type else prefix for type in sorted(set(types)) for prefix in PREFIXES[scheme]),
    )


def check_given(labels: Iterable[str], column: str, file: str) -> None:
    """Refuses a column that a CoNLL-U file leaves empty: one label everywhere is learnt without a fault."""
    if {*labels} == {"_"}:
        raise FormatError(f"{file}: has no labels in {column!r}, which is '_' at every word; choose another column")


def check_labels(labels: Sequence[str]) -> None:
    """Refuses what cannot be a network's labels."""
    if not labels or len(set(labels)) != len(labels):
        raise ConfigError(f"labels is {str(list(labels))[:60]}; expected at least one, and each once")


def legal_transitions(labels: Sequence[str], scheme: Scheme) -> Transitions:
    """Which sequences of labels the scheme can write."""
    parts = [split_tag(label) for label in labels]
    around = (OUTSIDE, "")  # before the first and behind the last word
    return Transitions(
        np.array([_may_follow(around, part, scheme) for part in parts]),
        np.array([[_may_follow(a, b, scheme) for b in parts] for a in parts]),
        np.array([_may_follow(part, around, scheme) for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """Spans found, spans there are, and spans that are both."""

    found: int = 0
    gold: int = 0
    right: int = 0

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True, slots=True)
class SpanScores:
    """All types together, each type, and the share of words whose label is right as it stands."""

    overall: SpanCounts
    types: dict[str, SpanCounts]
    accuracy: float

    @property
    def f1(self) -> float:
        return self.overall.f1


def score_spans(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> SpanScores:
    """Label sequences, sentence by sentence; the two sides may use different schemes (then accuracy says little)."""
    accuracy = label_accuracy(gold, predicted)
    pairs = [(set(read_spans(true)), set(read_spans(guessed))) for true, guessed in zip(gold, predicted, strict=True)]
    return SpanScores(*count_types(pairs, lambda span: span.type), accuracy)


def count_types(
    pairs: Iterable[tuple[set[T], set[T]]], type_of: Callable[[T], str]
) -> tuple[SpanCounts, dict[str, SpanCounts]]:
    """All together and each type, sorted; a pair is what there is and what was found."""
    there: Counter[str] = Counter()
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for wanted, given in pairs:
        there.update(map(type_of, wanted))
        found.update(map(type_of, given))
        right.update(map(type_of, wanted & given))
    types = {type: SpanCounts(found[type], there[type], right[type]) for type in sorted(found.keys() | there.keys())}
    return SpanCounts(found.total(), there.total(), right.total()), types


def label_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of words whose label is right; 0 where there are none."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(gold)} sentences, but predictions for {len(predicted)}")
    words = same = 0
    for number, (true, guessed) in enumerate(zip(gold, predicted, strict=True)):
        if len(true) != len(guessed):
            raise InputError(f"sentence {number} has {len(true)} labels, but {len(guessed)} were predicted")
        words += len(true)
        same += sum(a == b for a, b in zip(true, guessed, strict=True))
    return same / words if words else 0.0


def _prefix(k: int, length: int, *, touching: bool, scheme: Scheme) -> str:
    match scheme:
        case "IOB1":
            return "B" if k == 0 and touching else "I"
        case "IOB2":
            return "B" if k == 0 else "I"
        case "IOBES":
            if length == 1:
                return "S"
            return "B" if k == 0 else "E" if k == length - 1 else "I"


def _may_follow(before: tuple[str, str], after: tuple[str, str], scheme: Scheme) -> bool:
    same = before[1] == after[1]
    match scheme:
        case "IOB1":  # B only behind a span of its own type
            return after[0] != "B" or (before[0] in "IB" and same)
        case "IOB2":  # I only inside a span of its own type
            return after[0] != "I" or (before[0] in "BI" and same)
        case "IOBES":
            open_before, goes_on = before[0] in "BI", after[0] in "IE"
            return open_before == goes_on and (not goes_on or same)
