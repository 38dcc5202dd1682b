"""Paragraphs that repeat earlier ones, exactly or nearly, and short lines that stand everywhere.

A paragraph is compared by its sequences of five words, small letters, digits made alike; of scripts without spaces, by
sequences of five characters. 32 of them are chosen by hashing (MinHash; Broder 1997), in four groups of eight. A
paragraph that has a group in common with an earlier one is a near copy: certainly if all sequences are shared, in nine
cases of ten if nine tenths are, in one of fifty if half are. The first of them stays. A line of fewer than five words
is taken for a heading or the like, of which the first nine stay.

It runs once over the text, in its order, and holds about 400 bytes for each paragraph that stays.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.pretrain.corpus.text import Block

Hashes = NDArray[np.uint64]
SHINGLE = 5  # words of a sequence
BANDS, PER_BAND = 4, 8
SHORT_COPIES = 9  # of a short line, that stay
LONG_WORD = 15  # characters a word on average: then the script has no spaces
KNOWN_WORDS = 1 << 20  # whose hashes are kept
SHOWN = 60  # characters of an example
_DIGITS = str.maketrans("123456789", "000000000")


@dataclass(slots=True)
class DuplicateReport:
    """What was found; `words` are those of the paragraphs that repeat others, split at spaces."""

    paragraphs: int = 0
    exact: int = 0
    near: int = 0
    short: int = 0  # copies of short lines behind the ninth
    words: int = 0
    all_words: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)  # what is repeated most: copies, text

    @property
    def share(self) -> float:
        """Of all words, those in repetitions."""
        return self.words / self.all_words if self.all_words else 0.0

    def told(self) -> str:
        """In one line."""
        return (
            f"{self.exact:,} of {self.paragraphs:,} paragraphs repeat an earlier one, {self.near:,} nearly, and "
            f"{self.short:,} are short lines seen over and over: {self.share:.1%} of the words"
        )


class Duplicates:
    """Finds repetitions in lines given in order."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # how often each line was met, by the hash of its text
        self._bands: set[int] = set()
        self._words: dict[str, int] = {}
        self._texts: dict[int, str] = {}  # of lines met three times and more
        self._report = DuplicateReport()
        rng = np.random.default_rng(20)
        self._factors = rng.integers(0, 1 << 63, BANDS * PER_BAND, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._weights = rng.integers(0, 1 << 63, max(SHINGLE, PER_BAND), dtype=np.uint64) * np.uint64(2) + np.uint64(1)

    @property
    def report(self) -> DuplicateReport:
        """Of all lines so far."""
        most = sorted(self._texts, key=lambda key: (-self._seen[key], self._texts[key]))[:5]
        self._report.examples = [(self._seen[key], self._texts[key][:SHOWN]) for key in most]
        return self._report

    def filter(self, blocks: Iterable[Block], *, field: str) -> Iterator[Block]:
        """The blocks with repeated lines made empty, so that the numbers of the others stay."""
        return (block for block in self.split(blocks, field=field) if not block.repeated)

    def split(self, blocks: Iterable[Block], *, field: str) -> Iterator[Block]:
        """The same, and behind each block these lines alone, where it has any."""
        for block in blocks:
            raw = block.data.split(b"\n")
            texts = [line.decode("utf-8", "replace") for line in raw]
            if block.kind == "jsonl":
                texts = [_field_of(line, field) for line in texts]
            repeated = self.mark(texts)
            if not any(repeated):
                yield block
                continue
            kept = (b"" if gone else line for line, gone in zip(raw, repeated, strict=True))
            ending = b"\n" if repeated[-1] else b""  # or there would be a line less
            left_out = sum(1 + text.count("\n") for text, gone in zip(texts, repeated, strict=True) if gone)
            yield block._replace(data=b"\n".join(kept) + ending, left_out=left_out)
            again = b"\n".join(line for line, gone in zip(raw, repeated, strict=True) if gone)
            yield Block(again, block.kind, block.name, consumed=block.consumed, repeated=True)

    def mark(self, lines: Sequence[str]) -> list[bool]:
        """Whether each line repeats an earlier one, of this call or before."""
        units = [_units(line) for line in lines]
        bands = self._signatures(units)  # (long lines, BANDS)
        repeated, at = [], 0
        for line, words in zip(lines, units, strict=True):
            own: list[int] = []
            if len(words) >= SHINGLE:
                own, at = bands[at], at + 1
            repeated.append(self._repeats(line, words, own))
        return repeated

    def _repeats(self, line: str, words: Sequence[str], bands: list[int]) -> bool:
        if not words:
            return False
        report, key = self._report, hash_text("\n".join(words))
        size = len(line.split())
        report.paragraphs += 1
        report.all_words += size
        copies = self._seen[key] = self._seen.get(key, 0) + 1
        if copies == 3 and len(self._texts) < 10_000:
            self._texts[key] = " ".join(line.split())
        if not bands:
            gone = copies > SHORT_COPIES
            report.short += gone
        else:
            near = any(band in self._bands for band in bands)
            gone = copies > 1 or near
            report.exact += copies > 1
            report.near += near and copies == 1
            if not gone:
                self._bands.update(bands)
        report.words += size * gone
        return gone

    def _signatures(self, units: Sequence[Sequence[str]]) -> list[list[int]]:
        """The hashes of the four groups, of each line that has a sequence."""
        long = [words for words in units if len(words) >= SHINGLE]
        if not long:
            return []
        if len(self._words) > KNOWN_WORDS:
            self._words.clear()
        known = self._words
        flat = np.fromiter((self._hash(word, known) for words in long for word in words), dtype=np.uint64)
        lengths = np.array([len(words) for words in long])
        ends = np.cumsum(lengths)
        sums = sum(flat[k : len(flat) - SHINGLE + 1 + k] * self._weights[k] for k in range(SHINGLE))
        inside = np.ones(len(flat), dtype=np.bool_)  # where a sequence begins that does not leave its line
        for k in range(1, SHINGLE):
            inside[ends - k] = False
        shingles = mix_bits(np.asarray(sums)[inside[: len(flat) - SHINGLE + 1]])
        counts = lengths - SHINGLE + 1
        starts = np.cumsum(counts) - counts
        found = np.zeros((len(long), BANDS), dtype=np.uint64)
        for number, factor in enumerate(self._factors):
            least = np.minimum.reduceat(shingles * factor, starts)  # (long lines,)
            found[:, number // PER_BAND] += mix_bits(least) * self._weights[number % PER_BAND]
        found += np.arange(BANDS, dtype=np.uint64)
        made: list[list[int]] = mix_bits(found).tolist()
        return made

    @staticmethod
    def _hash(word: str, known: dict[str, int]) -> int:
        made = known.get(word)
        if made is None:
            made = known[word] = hash_text(word)
        return made


def hash_text(text: str) -> int:
    """64 bits of a text, the same in every process."""
    data = text.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) << 32 | zlib.adler32(data[::-1]) ^ len(data)


def _units(line: str) -> Sequence[str]:
    """The words of a line, or its characters where it has no spaces; small letters, digits made alike."""
    folded = line.casefold().translate(_DIGITS)
    words = folded.split()
    if words and len(folded) > LONG_WORD * len(words):
        return [character for character in folded if not character.isspace()]
    return words


def _field_of(line: str, field: str) -> str:
    """The text of a JSON line; nothing for what is no text, which the reader takes as it is or refuses."""
    try:
        value: Any = json.loads(line)[field] if line.strip() else ""
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def mix_bits(numbers: Hashes) -> Hashes:
    """A fixed, well-spread function of 64-bit numbers (the finaliser of SplitMix64)."""
    z = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = z ^ (z >> np.uint64(31))
    return mixed
