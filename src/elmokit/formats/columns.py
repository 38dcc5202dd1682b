"""Column files of the CoNLL shared tasks: a token and its labels a line, a blank line after each sentence."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elmokit.errors import FormatError
from elmokit.text import Sentence

_SPACES = re.compile(" +")


@dataclass(frozen=True, slots=True)
class ColumnSentence:
    """One sentence with all its columns. `document` counts -DOCSTART- lines: 0 where the file has none."""

    rows: tuple[tuple[str, ...], ...]
    line: int
    document: int = 0

    def column(self, k: int) -> tuple[str, ...]:
        return tuple(row[k] for row in self.rows)

    @property
    def sentence(self) -> Sentence:
        """The first column as tokens."""
        return Sentence.of(self.column(0))


def read_columns(lines: Iterable[str], *, name: str) -> Iterator[ColumnSentence]:
    """Columns between tabs or, where a line has none, spaces; all lines of a file have as many of them as the first."""
    rows: list[tuple[str, ...]] = []
    begin = document = width = 0
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            if rows:
                yield ColumnSentence(tuple(rows), begin, document)
                rows = []
            continue
        row = tuple(line.split("\t") if "\t" in line else _SPACES.split(line.strip(" ")))
        if row[0] == "-DOCSTART-":
            document += 1
            continue
        if line.startswith("#begin document"):
            raise FormatError(
                f"{name}, line {number}: begins a document of CoNLL-2012, which has its words in the fourth column; "
                "expected them in the first"
            )
        width = width or len(row)
        if len(row) != width or not row[0]:
            raise FormatError(
                f"{name}, line {number}: has {len(row)} columns, the first of them {row[0]!r}; "
                f"expected a token and {width - 1} more, as on the lines above"
            )
        begin = number if not rows else begin
        rows.append(row)
    if rows:
        yield ColumnSentence(tuple(rows), begin, document)
