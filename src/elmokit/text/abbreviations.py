"""Abbreviations of a language, learnt from a text in it. The idea is that of Kiss and Strunk 2006 (Punkt).

A stop behind a word ends a sentence, or belongs to the word. What stands behind the stop tells, over a whole text:

1. Sure ends: a stop behind four or more small letters, before a space and a capital.
2. Starters: the 60 most frequent words behind a sure end that are otherwise written small, in three cases of four or
   more (The, He; not names, and not the nouns of German). Of the sure ends, a share q is followed by one.
3. An abbreviation is a word of up to eight letters with a stop behind it, five times or more and in more than half of
   its places, where fewer starters follow than would if these stops ended sentences: three standard deviations fewer
   (of the binomial distribution), and less than a quarter as many. Spelling counts: "No" and "no" are two words.

It needs capitals: of scripts without them, nothing is learnt. A tokenizer that uses the lists, which is
`unicode@2+abbreviations:FILE`, has them in its name, so that a model remembers them: unicode+abbreviations=Dr,Prof/He.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import FormatError, InputError

_WORD = re.compile(r"(?P<word>[^\W\d_]+(?:\.[^\W\d_]+)*)(?:(?P<stop>\.)(?=[\"'”’)\]]*\s+(?P<next>\S)|[,;:]))?")
_NEXT = re.compile(r"[\"'“‘«(\[]*([^\W\d_]+)")
ABBREVIATIONS = "abbreviations"  # in a tokenizer's name
STARTERS = 60
SURE = 4  # letters before a stop that ends a sentence
LONGEST = 8  # letters of an abbreviation
LEAST = 5  # stops behind it
MOST = 0.9  # that q is taken for
DEVIATIONS = 3.0


class Abbreviation(NamedTuple):
    """A word that keeps its stop, and why."""

    word: str
    stops: int  # places with a stop behind it, inside a line
    places: int
    starters: int  # of these stops, those that a starter follows


@dataclass
class AbbreviationCounter:
    """Counts lines of text; `learn` says what they show."""

    words: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)  # with something behind them
    behind: Counter[tuple[str, str]] = field(default_factory=Counter)  # a word with a stop, and the next word
    sure: Counter[str] = field(default_factory=Counter)  # the words behind sure ends
    inside: Counter[str] = field(default_factory=Counter)  # words with a capital where no sentence starts

    def add(self, line: str) -> None:
        """Count one line: a sentence or a paragraph."""
        first = True
        for match in _WORD.finditer(line):
            word = match["word"]
            self.words[word] += 1
            if not first and word[0].isupper():
                self.inside[word] += 1
            first = False
            if not match["stop"]:
                continue
            self.stops[word] += 1
            found = _NEXT.match(line, match.start("next")) if match["next"] else None
            following = found[1] if found else ""
            first = match["next"] is not None  # perhaps: such a word does not tell how it is written inside a sentence
            if following[:1].isupper():
                if len(word) <= LONGEST:
                    self.behind[word, following] += 1
                if len(word) >= SURE and word.islower():
                    self.sure[following] += 1

    def starters(self) -> list[str]:
        """The words that begin sentences, the most frequent first."""
        common = (word for word, _ in self.sure.most_common() if self.words[word.lower()] > 3 * self.inside[word])
        return [word for word, _ in zip(common, range(STARTERS), strict=False)]

    def learn(self) -> tuple[list[Abbreviation], list[str]]:
        """The abbreviations, the most frequent first, and the starters."""
        starters = self.starters()
        known, ends = set(starters), sum(self.sure.values())
        if not known or not ends:
            return [], []
        q = min(sum(self.sure[word] for word in starters) / ends, MOST)
        followed: Counter[str] = Counter()
        for (word, following), count in self.behind.items():
            followed[word] += count if following in known else 0
        found = []
        for word, stops in self.stops.most_common():
            expected, spread = q * stops, math.sqrt(stops * q * (1 - q))
            few = followed[word] < expected / 4 and expected - followed[word] >= DEVIATIONS * spread
            if few and stops >= LEAST and len(word) <= LONGEST and 2 * stops > self.words[word]:
                found.append(Abbreviation(word, stops, self.words[word], followed[word]))
        return found, starters


def learn_abbreviations(lines: Iterable[str]) -> tuple[list[Abbreviation], list[str]]:
    """The abbreviations of a text, the most frequent first, and the words that begin its sentences."""
    counter = AbbreviationCounter()
    for line in lines:
        counter.add(line)
    return counter.learn()


class Lists(NamedTuple):
    """What a tokenizer needs to know."""

    abbreviations: tuple[str, ...]
    starters: tuple[str, ...]

    @property
    def named(self) -> str:
        """As part of a tokenizer's name."""
        return f"abbreviations={','.join(self.abbreviations)}/{','.join(self.starters)}"


def parse_lists(named: str) -> Lists:
    """The lists in a part of a tokenizer's name: in it (abbreviations=Dr,Prof/He,The), or in the file that it names."""
    kind, mark, given = named.partition("=") if "=" in named else named.partition(":")
    if mark == ":" and given:
        return read_lists(given)
    short, _, starters = given.partition("/")
    found = Lists(*(tuple(sorted(filter(None, part.split(",")))) for part in (short, starters)))
    if mark != "=" or kind != "abbreviations" or not all(map(_is_word, (*found.abbreviations, *found.starters))):
        raise InputError(
            f"{named[:60]!r} in the name of a tokenizer; expected abbreviations:FILE, with a file that "
            "elmokit tokenize TEXT --learn FILE  made"
        )
    return found


def lists_as_text(abbreviations: Iterable[Abbreviation], starters: Iterable[str]) -> str:
    """A line for each: "abbreviation", the word and its three counts; or "starter" and the word; tabs between."""
    lines = ["\t".join(("abbreviation", *map(str, one))) for one in abbreviations]
    return "".join(f"{line}\n" for line in (*lines, *(f"starter\t{word}" for word in starters)))


def read_lists(path: str | Path) -> Lists:
    """What `lists_as_text` gives; the counts may be left out."""
    found: dict[str, list[str]] = {"abbreviation": [], "starter": []}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the list of abbreviations cannot be read ({error})") from error
    for number, line in enumerate(lines, 1):
        kind, *rest = line.split("\t")
        if line.strip():
            if kind not in found or not rest or not _is_word(rest[0]):
                raise FormatError(
                    f"{path}, line {number}: {line[:40]!r}, expected 'abbreviation' or 'starter', a tab and a word"
                )
            found[kind].append(rest[0])
    return Lists(tuple(sorted(set(found["abbreviation"]))), tuple(sorted(set(found["starter"]))))


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None
