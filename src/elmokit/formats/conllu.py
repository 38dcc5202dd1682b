"""CoNLL-U, the format of Universal Dependencies (https://universaldependencies.org/format.html)."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elmokit.errors import FormatError
from elmokit.text import Sentence

_ID = re.compile(r"(\d+)(?:-(\d+)|(\.\d+))?")
_TEXT = re.compile(r"#\s*text\s*=\s*(.*)")
_FORM, _MISC, _COLUMNS = 1, 9, 10

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ConlluSentence:
    """The syntactic words of one sentence with their ten columns; multiword and empty tokens are not among the rows.

    Each word has its own span of the text; words that a multiword token does not spell out (French du = de + le) share
    that token's span. Without a `# text` line the text is put together from the forms and SpaceAfter.
    """

    sentence: Sentence
    rows: tuple[tuple[str, ...], ...]
    comments: tuple[str, ...]
    line: int


@dataclass(slots=True)
class _Surface:
    """A form of the text, the words it is made of, and whether a space follows."""

    form: str
    words: int
    spaced: bool


def read_conllu(lines: Iterable[str], *, name: str) -> Iterator[ConlluSentence]:
    """The sentences of a CoNLL-U file."""
    block: list[str] = []
    number = 0
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            block.append(line)
        elif block:
            yield _parse(block, name, number - len(block))
            block = []
    if block:
        yield _parse(block, name, number - len(block) + 1)


def _parse(block: list[str], name: str, begin: int) -> ConlluSentence:
    comments: list[str] = []
    rows: list[tuple[str, ...]] = []
    surfaces: list[_Surface] = []
    covered = 0  # the last word that belongs to a multiword token
    for number, line in enumerate(block, begin):
        if line.startswith("#"):
            comments.append(line)
            continue
        row = tuple(line.split("\t"))
        identity = _ID.fullmatch(row[0])
        if len(row) != _COLUMNS or identity is None:
            raise FormatError(
                f"{name}, line {number}: has {len(row)} columns, the first of them {row[0][:20]!r}; "
                f"expected the {_COLUMNS} tab-separated columns of CoNLL-U, beginning with a word number"
            )
        first, last, empty = int(identity[1]), identity[2], identity[3]
        if empty:
            continue
        if first != len(rows) + 1 or (last and int(last) < first):
            raise FormatError(f"{name}, line {number}: word number {row[0]}, expected {len(rows) + 1}")
        spaced = "SpaceAfter=No" not in row[_MISC].split("|")
        if last:
            covered = int(last)
            surfaces.append(_Surface(row[_FORM], covered - first + 1, spaced))
            continue
        rows.append(row)
        if first > covered:
            surfaces.append(_Surface(row[_FORM], 1, spaced))
    if covered > len(rows):
        raise FormatError(
            f"{name}, line {begin}: a multiword token ends at word {covered}, expected {len(rows)} at most"
        )
    given = next((found[1] for comment in comments if (found := _TEXT.match(comment))), None)
    text = given if given is not None else _rebuilt(surfaces)
    words = tuple(row[_FORM] for row in rows)
    sentence = Sentence(words, text, _spans(text, surfaces, words))
    return ConlluSentence(sentence, tuple(rows), tuple(comments), begin)


def _rebuilt(surfaces: list[_Surface]) -> str:
    return "".join(surface.form + " " * surface.spaced for surface in surfaces).rstrip(" ")


def _spans(text: str, surfaces: list[_Surface], words: tuple[str, ...]) -> tuple[Span, ...] | None:
    """The place of each word in the text; None if the text does not hold the forms in order."""
    spans: list[Span] = []
    end = 0
    for surface in surfaces:
        begin = end
        while not text.startswith(surface.form, begin):
            if not text[begin : begin + 1].isspace():
                return None
            begin += 1
        end = begin + len(surface.form)
        parts = words[len(spans) : len(spans) + surface.words]
        if "".join(parts) == surface.form:
            for part in parts:
                spans.append((begin, begin + len(part)))
                begin += len(part)
        else:
            spans += [(begin, end)] * len(parts)
    return tuple(spans)
