"""`CorefDocument`: the words of a document, sentence by sentence, and the clusters of mentions that mean the same."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from elmokit.text import Sentence, Tokenizer

_CLOSED = ". , ; : ? ! … ... ) ] } ” ’ '' n't n’t 's ’s 'm ’m 're ’re 've ’ve 'll ’ll 'd ’d %"
_OPENED = "( [ { “ ‘ `` $ £ €"
_CLOSING, _OPENING = frozenset(_CLOSED.split()), frozenset(_OPENED.split())


class Mention(NamedTuple):
    """Words `start` to `end` (not included), counted through the whole document."""

    start: int
    end: int


Cluster = tuple[Mention, ...]


@dataclass(frozen=True)
class CorefDocument:
    """A document. `speakers` (one per word) and `genre` are None where the file has no such columns."""

    name: str
    sentences: tuple[Sentence, ...]
    clusters: tuple[Cluster, ...] | None = None
    speakers: tuple[str, ...] | None = None
    genre: str | None = None
    part: str = "0"
    # What the file had wrong and the reader left out. It names the file, so it is no part of what a training was of.
    notes: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __len__(self) -> int:
        """Words."""
        return sum(map(len, self.sentences))

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(word for sentence in self.sentences for word in sentence.tokens)

    @cached_property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Where each word stands in the text of the document; in tokens joined by spaces if that is all there was."""
        return tuple(
            (sentence.start + a, sentence.start + b) for sentence in self.sentences for a, b in sentence.offsets or ()
        )

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first word of each sentence, and the number of words."""
        return tuple(accumulate(map(len, self.sentences), initial=0))

    def characters(self, mention: Mention) -> tuple[int, int]:
        """Where a mention stands in the text."""
        return self.offsets[mention.start][0], self.offsets[mention.end - 1][1]

    def text_of(self, mention: Mention) -> str:
        """A mention as it stands in the text; the words with spaces between where it leaves its sentence."""
        first, last = self.characters(mention)
        sentence = self.sentences[bisect_right(self.starts, mention.start) - 1]
        if sentence.text is None or last - sentence.start > len(sentence.text):
            return " ".join(self.words[mention.start : mention.end])
        return sentence.text[first - sentence.start : last - sentence.start]

    def resolve(self, clusters: Iterable[Cluster]) -> "Resolved":
        """Clusters with their places in the text."""
        return Resolved(
            tuple(
                tuple(ResolvedMention(self.text_of(mention), *self.characters(mention), mention) for mention in cluster)
                for cluster in clusters
            )
        )


class ResolvedMention(NamedTuple):
    """A mention in the text: characters `start` to `end` (not included)."""

    text: str
    start: int
    end: int
    words: Mention


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was found in a document: clusters of mentions, in the order of the text."""

    clusters: tuple[tuple[ResolvedMention, ...], ...]

    @property
    def words(self) -> tuple[Cluster, ...]:
        """The clusters by their words."""
        return tuple(tuple(mention.words for mention in cluster) for cluster in self.clusters)


def order_clusters(clusters: Iterable[Iterable[Mention]]) -> tuple[Cluster, ...]:
    """Mentions and clusters in the order of the text."""
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters))


def place_sentences(sentences: Iterable[Sequence[str]]) -> tuple[Sentence, ...]:
    """Tokens as sentences of one text: a space between tokens and between sentences."""
    placed: list[Sentence] = []
    start = 0
    for tokens in sentences:
        ends = list(accumulate(len(token) + 1 for token in tokens))
        spans = [(end - 1 - len(token), end - 1) for token, end in zip(tokens, ends, strict=True)]
        placed.append(Sentence(tuple(tokens), " ".join(tokens), tuple(spans), start))
        start += ends[-1] if ends else 0
    return tuple(placed)


def split_tokens(tokens: Sequence[str], tokenizer: Tokenizer) -> list[list[str]]:
    """A document without sentence breaks as sentences: the tokenizer says where they end, the tokens stay as they are.

    It was made for running text, so the tokens are joined as in a text: no space before a stop or behind a bracket.
    """
    starts: list[int] = []
    text = ""
    quoted = False
    glued = True  # whether the next token comes without a space
    for token in tokens:
        straight = token == '"'
        if not (glued or token in _CLOSING or (straight and quoted)):
            text += " "
        starts.append(len(text))
        text += token
        glued = token in _OPENING or (straight and not quoted)
        quoted ^= straight
    begins = [sentence.start for sentence in tokenizer.split(text)][1:]
    split: list[list[str]] = [[]]
    for token, start in zip(tokens, starts, strict=True):
        if begins and start >= begins[0]:
            begins = [begin for begin in begins if begin > start]
            split.append([])
        split[-1].append(token)
    return [sentence for sentence in split if sentence]
