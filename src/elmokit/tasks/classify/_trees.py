"""Trees with a label at every node, one a line, as the Stanford Sentiment Treebank has them (Socher et al. 2013).

(3 (2 It) (4 (2 's) (3 lovely)))
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.errors import FormatError
from elmokit.text import Sentence, unescape_treebank

_PART = re.compile(r"[()]|[^\s()]+")


class Phrase(NamedTuple):
    """Words `start` to `end` (not included) and the label of the node above them."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class LabelledTree:
    """A sentence and its labelled phrases, each node once, the whole sentence last."""

    sentence: Sentence
    phrases: tuple[Phrase, ...]
    line: int

    @property
    def label(self) -> str:
        """The label of the whole sentence."""
        return self.phrases[-1].label


def read_trees(lines: Iterable[str], *, name: str) -> Iterator[LabelledTree]:
    """The trees of a file; blank lines are passed over, and the treebank's escapes in words are undone."""
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            yield _parse(line, f"{name}, line {number}", number)


def _parse(line: str, place: str, number: int) -> LabelledTree:
    tokens: list[str] = []
    phrases: list[Phrase] = []
    open_nodes: list[tuple[int, str]] = []  # where each begins, and its label once it was read
    for match in _PART.finditer(line):
        part = match.group()
        if phrases and not open_nodes:
            raise FormatError(f"{place}: {line[match.start() :][:20]!r} follows a whole tree; expected one tree a line")
        if part == "(":
            if open_nodes and not open_nodes[-1][1]:
                raise FormatError(f"{place}: a node begins with '(', expected a label, as in (2 word)")
            open_nodes.append((len(tokens), ""))
        elif not open_nodes:
            raise FormatError(f"{place}: begins with {part[:20]!r}, expected a tree such as (3 (2 It) (4 works))")
        elif part == ")":
            start, label = open_nodes.pop()
            if not label or start == len(tokens):
                raise FormatError(
                    f"{place}: a node has no {'words' if label else 'label'}; expected one as in (2 word)"
                )
            phrases.append(Phrase(start, len(tokens), label))
        elif not open_nodes[-1][1]:
            open_nodes[-1] = (len(tokens), part)
        else:
            tokens.append(unescape_treebank(part))
    if open_nodes:
        raise FormatError(f"{place}: {len(open_nodes)} brackets are not closed; the line seems to be cut off")
    return LabelledTree(Sentence.of(tokens), tuple(phrases), number)
