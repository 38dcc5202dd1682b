"""Pairs of words in contexts: SCWS, with human ratings of their similarity, and WiC, with the same sense or another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from elmokit.errors import FormatError
from elmokit.text import Sentence

BEGIN, END = "<b>", "</b>"
ENDS = frozenset(".!?")


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word, or several, in a sentence: tokens start to end (not included)."""

    sentence: Sentence
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WordPair:
    """Two words in their contexts, and what people say of them: a rating from 0 to 10, or 1 and 0 for same or not."""

    first: PlacedWord
    second: PlacedWord
    value: float


def read_scws(lines: Iterable[str], *, name: str) -> Iterator[WordPair]:
    """SCWS (Huang et al. 2012): number, word, part of speech, twice; two contexts with <b> word </b>; mean rating ...

    The contexts run over several sentences; of each the one with the word is taken.
    """
    for at, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        columns = line.split("\t")
        if len(columns) < 8 or not _is_number(columns[7]):
            raise FormatError(f"{name}, line {at}: {len(columns)} columns, expected 8 or more, the eighth a rating")
        first, second = (_marked(columns[k], f"{name}, line {at}") for k in (5, 6))
        yield WordPair(first, second, float(columns[7]))


def read_wic(lines: Iterable[str], *, name: str) -> Iterator[WordPair]:
    """WiC (Pilehvar and Camacho-Collados 2019): T or F, word, part of speech, places such as 2-5, two sentences.

    Tokens stand between spaces.
    """
    for at, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        columns = line.split("\t")
        places = columns[3].split("-") if len(columns) == 6 else []
        if len(places) != 2 or columns[0] not in ("T", "F") or not all(map(str.isdecimal, places)):
            raise FormatError(
                f"{name}, line {at}: {line[:40]!r}, expected T or F, a word, its part of speech, two places such as "
                f"2-5 and two sentences, between tabs"
            )
        words = []
        for place, text in zip(map(int, places), columns[4:], strict=True):
            sentence = Sentence.of(text.split())
            if place >= len(sentence):
                raise FormatError(f"{name}, line {at}: word {place} of a sentence of {len(sentence)} words")
            words.append(PlacedWord(sentence, place, place + 1))
        yield WordPair(words[0], words[1], float(columns[0] == "T"))


def read_pairs(lines: Iterable[str], *, name: str) -> tuple[Literal["scws", "wic"], list[WordPair]]:
    """Either of them, recognised by its first line."""
    given = list(lines)
    first = next((line for line in given if line and not line.isspace()), None)
    if first is None:
        raise FormatError(f"{name}: is empty; expected pairs of words in context, as in SCWS or WiC")
    if first.split("\t")[0] in ("T", "F"):
        return "wic", list(read_wic(given, name=name))
    return "scws", list(read_scws(given, name=name))


def _marked(text: str, place: str) -> PlacedWord:
    """The sentence with the marked word, without the marks."""
    tokens = text.split()
    if tokens.count(BEGIN) != 1 or tokens.count(END) != 1 or tokens.index(END) < tokens.index(BEGIN) + 2:
        raise FormatError(f"{place}: {text[:40]!r} ..., expected a context with one {BEGIN} word {END} in it")
    start, end = tokens.index(BEGIN), tokens.index(END)
    before, words, after = tokens[:start], tokens[start + 1 : end], tokens[end + 1 :]
    begin = max((k + 1 for k, token in enumerate(before) if token in ENDS), default=0)
    stop = next((k + 1 for k, token in enumerate(after) if token in ENDS), len(after))
    sentence = Sentence.of([*before[begin:], *words, *after[:stop]])
    return PlacedWord(sentence, start - begin, start - begin + len(words))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
