"""Text with word senses: SemCor as columns, the unified all-words evaluation as XML, and WordNet's sense index.

A sense key reads `lemma%type:file:id:head:head_id`; types 1 to 5 are noun, verb, adjective, adverb and satellite
adjective, and the last counts as an adjective, as in WordNet's own numbering of senses.
"""

import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from elmokit.errors import FormatError
from elmokit.formats.streams import open_bytes, read_lines
from elmokit.text import Sentence, unescape_treebank

TYPES = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
PARTS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}

Lemma = tuple[str, str]  # a lemma, words joined by underscores, and its part of speech: n, v, a or r


@dataclass(frozen=True, slots=True)
class SenseInstance:
    """A word, or several that make one lemma, and the senses it has there."""

    start: int
    end: int  # tokens start to end (not included)
    lemma: Lemma
    keys: tuple[str, ...]
    id: str = ""


@dataclass(frozen=True, slots=True)
class SenseSentence:
    sentence: Sentence
    instances: tuple[SenseInstance, ...]


@dataclass(frozen=True, slots=True)
class SenseIndex:
    """WordNet's senses: the number of each key among those of its lemma, from 1, the most frequent first."""

    numbers: dict[str, int]
    first: dict[Lemma, str] = field(default_factory=dict)

    def __contains__(self, key: object) -> bool:
        return key in self.numbers


def lemma_of(key: str) -> Lemma:
    """The lemma and part of speech of a sense key."""
    lemma, percent, rest = key.rpartition("%")
    if not percent or rest[:1] not in TYPES or rest[1:2] != ":":
        raise FormatError(f"{key!r} is not a sense key; expected lemma%type:file:id:head:head_id")
    return lemma.lower(), TYPES[rest[0]]


def read_sense_index(lines: Iterable[str], *, name: str) -> SenseIndex:
    """WordNet's `index.sense`: key, synset, sense number, count a line."""
    index = SenseIndex({})
    for at, line in enumerate(lines, 1):
        columns = line.split()
        if len(columns) != 4 or not columns[2].isdecimal():
            raise FormatError(f"{name}, line {at}: {line[:40]!r}, expected a sense key and three numbers")
        key, number = columns[0], int(columns[2])
        index.numbers[key] = number
        if number == 1:
            index.first[_placed(key, name, at)] = key
    return index


def read_semcor(lines: Iterable[str], *, name: str, known: Collection[str] | SenseIndex) -> Iterator[SenseSentence]:
    """Tab-separated columns word, lemma, tag, sense keys (between spaces; _ for none); a blank line ends a sentence.

    Words of a multiword (`take_place`) stand apart. Keys that are not `known` are dropped, as are instances with none.
    """
    tokens: list[str] = []
    instances: list[SenseInstance] = []
    for at, line in enumerate(lines, 1):
        if line.startswith("#") and "\t" not in line:
            continue
        if not line or line.isspace():
            if tokens:
                yield SenseSentence(Sentence.of(tokens), tuple(instances))
                tokens, instances = [], []
            continue
        columns = line.split("\t")
        if len(columns) != 4 or not columns[0]:
            raise FormatError(
                f"{name}, line {at}: has {len(columns)} columns, expected word, lemma, tag and sense keys"
            )
        words = [word for word in columns[0].split("_") if word] or [columns[0]]
        keys = tuple(key for key in columns[3].split() if key in known)
        if keys:
            lemma = _placed(keys[0], name, at)
            instances.append(SenseInstance(len(tokens), len(tokens) + len(words), lemma, keys))
        tokens += words
    if tokens:
        yield SenseSentence(Sentence.of(tokens), tuple(instances))


def read_all_words(data: str | Path, gold: str | Path) -> Iterator[SenseSentence]:
    """The XML of the unified all-words evaluation (Raganato et al. 2017) and its file of gold keys."""
    answers = {}
    for at, line in enumerate(read_lines(gold), 1):
        id, *keys = line.split() or [""]
        if not keys:
            raise FormatError(f"{gold}, line {at}: {line[:40]!r}, expected an instance's name and its sense keys")
        answers[id] = tuple(keys)
    with open_bytes(data) as stream:
        try:
            for _, element in ET.iterparse(stream):
                if element.tag == "sentence":
                    yield _parse(element, answers, data, gold)
                    element.clear()
        except ET.ParseError as error:
            raise FormatError(f"{data}, line {error.position[0]}: not well-formed XML ({error})") from None


def unescape_senses(tagged: SenseSentence) -> SenseSentence:
    """The same with the Penn Treebank's escapes undone, as running text has it."""
    return replace(tagged, sentence=Sentence.of(map(unescape_treebank, tagged.sentence.tokens)))


def _parse(
    element: ET.Element, answers: dict[str, tuple[str, ...]], data: str | Path, gold: str | Path
) -> SenseSentence:
    tokens: list[str] = []
    instances: list[SenseInstance] = []
    for part in element:
        words = (part.text or "").split()
        if part.tag == "instance":
            id, pos = part.get("id", ""), part.get("pos", "")
            if not words or pos not in PARTS:
                raise FormatError(
                    f"{data}: instance {id!r} has no words or part of speech {pos!r}, expected {list(PARTS)}"
                )
            if id not in answers:
                raise FormatError(f"{data}: instance {id!r} has no answer in {gold}")
            lemma = part.get("lemma", "").lower().replace(" ", "_"), PARTS[pos]
            instances.append(SenseInstance(len(tokens), len(tokens) + len(words), lemma, answers[id], id))
        tokens += words
    return SenseSentence(Sentence.of(tokens), tuple(instances))


def _placed(key: str, name: str, at: int) -> Lemma:
    try:
        return lemma_of(key)
    except FormatError as error:
        raise FormatError(f"{name}, line {at}: {error}") from None
