"""Words to the pieces (subwords) of a transformers tokenizer, and windows over texts longer than a model takes.

Words are cut one by one. Tokenizers may drop characters, and a word may have no piece left; so it is always known which
word a piece belongs to, and a word seen before need not be cut again.

Windows overlap, and begin and end between words. A piece is taken from the window that shows it the most context: for a
model that sees both sides, the one in which it stands farther from the edge; for one that sees the left, the earlier.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from elmokit.encoders.batches import Turn
from elmokit.errors import InputError, WeightsError
from elmokit.formats.streams import mend

MOST_WORDS = 1 << 17  # remembered; then all are forgotten
Pieces = tuple[int, ...]


class PieceCutter:
    """Words to ids. `before` and `after` are the special pieces around a text, `filler` pads a batch.

    A word without pieces gets `nothing`: the tokenizer's piece for the unknown. Where it has none of its own (GPT-2's
    is its mark for the end of a text, which would cut off the words before), that is no piece, and the vector is zero.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        # Byte-level tokenizers write the space before a word into its first piece; without it, it is another word.
        self.space = " " if _is_byte_level(tokenizer) else ""
        self.known: dict[str, Pieces] = {}
        self.turn = Turn()  # the library's tokenizers refuse to work for two threads at once
        self.before, self.sample, self.after = self._around()
        others = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, *self.before, *self.after}
        unknown: int | None = tokenizer.unk_token_id
        self.nothing: Pieces = () if unknown is None or unknown in others else (unknown,)
        self.filler: int = tokenizer.pad_token_id or 0

    def cut(self, words: Iterable[str]) -> list[Pieces]:
        """The pieces of each word."""
        words = list(words)
        with self.turn:
            if len(self.known) > MOST_WORDS:
                self.known.clear()
            missing = list({word: None for word in words if word not in self.known})
            if missing:
                for word, ids in zip(missing, self._ids([self.space + mend(word)[0] for word in missing]), strict=True):
                    self.known[word] = tuple(ids) if word and ids else self.nothing
            return [self.known[word] for word in words]

    def unknown(self, word: str) -> bool:
        """Whether nothing of the word is left but the piece for the unknown."""
        (pieces,) = self.cut([word])
        return all(piece in self.nothing for piece in pieces)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        # Said explicitly: some tokenizers' files ask for truncation. Verbose would warn of long words, which are fine.
        made = self.tokenizer(texts, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return list(made["input_ids"])

    def _around(self) -> tuple[Pieces, int, Pieces]:
        """The special pieces around a text, found by looking at one, and a piece that is not special."""
        for word in ("a", "e", "1", ".", *self.tokenizer.get_vocab()):
            text = self.space + word
            (inner,) = self._ids([text])
            if not inner or set(inner) & set(self.tokenizer.all_special_ids):
                continue
            whole = list(self.tokenizer(text, truncation=False, padding=False)["input_ids"])
            for at in range(len(whole) - len(inner) + 1):
                if whole[at : at + len(inner)] == inner:
                    return tuple(whole[:at]), inner[0], tuple(whole[at + len(inner) :])
        raise WeightsError("its tokenizer makes no pieces of any word of its own vocabulary; the files do not belong")


def _is_byte_level(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a tokenizer written in Python
        return hasattr(tokenizer, "add_prefix_space")
    return "ByteLevel" in repr(backend.pre_tokenizer)


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
