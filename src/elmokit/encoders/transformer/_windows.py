"""Texts longer than a model takes: overlapping windows, and from which of them each piece's vector is taken.

Windows begin and end between words. A piece is taken from the window that shows it the most context: of two that hold
it, for a model that sees both sides, the one in which it stands farther from the edge; for a model that sees the left
only, the earlier one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from elmokit.errors import InputError


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """How many pieces a window holds, and how many of them it shares with the next at most."""

    room: int
    overlap: int

    def __post_init__(self) -> None:
        if self.room < 1:
            raise InputError(f"windows have room for {self.room} pieces; at least 1 is needed beside the special ones")
        if not 0 <= self.overlap < self.room:
            raise InputError(
                f"windows of {self.room} pieces cannot share {self.overlap}; the overlap may be 0 to {self.room - 1}"
            )


@dataclass(frozen=True, slots=True)
class Window:
    """The pieces `begin` to `end` of a text, of which `first` to `last` are taken from this window; ends excluded."""

    begin: int
    end: int
    first: int
    last: int


def cut_windows(counts: Sequence[int], plan: WindowPlan, *, left_only: bool) -> list[Window]:
    """Windows over words of so many pieces each. Every piece is taken from exactly one of them."""
    edges = _edges(counts, longest=plan.room - plan.overlap)
    total = edges[-1]
    if total <= plan.room:
        return [Window(0, total, 0, total)] if total else []
    spans: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = edges[bisect_right(edges, begin + plan.room) - 1]
        if end == total:  # the last one begins earlier than it must: a full window shows more context
            spans.append((edges[bisect_left(edges, total - plan.room)], total))
            break
        spans.append((begin, end))
        # A unit is at most room - overlap, so this lies behind `begin`, and the next window reaches beyond `end`.
        begin = edges[bisect_left(edges, end - plan.overlap)]
    cuts = [end if left_only else _middle(edges, begin, end) for (_, end), (begin, _) in pairwise(spans)]
    return [Window(*span, *owned) for span, owned in zip(spans, pairwise([0, *cuts, total]), strict=True)]


def _edges(counts: Sequence[int], *, longest: int) -> list[int]:
    """Where windows may begin and end: between words, and inside words longer than `longest`."""
    units: list[int] = []
    for count in counts:
        whole, rest = divmod(count, longest)
        units += [longest] * whole
        if rest:
            units.append(rest)
    return [0, *accumulate(units)]


def _middle(edges: list[int], begin: int, end: int) -> int:
    """The first edge behind which a unit stands farther from `begin`, where the next window begins, than from `end`."""
    at = bisect_left(edges, begin)
    while edges[at] < end and edges[at] + edges[at + 1] <= begin + end:
        at += 1
    return edges[at]
