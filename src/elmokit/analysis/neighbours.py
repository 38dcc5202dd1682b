"""Nearest neighbours of a word in its context (Peters et al. 2018, table 4), and its static neighbours."""

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from elmokit.encoders import Encoder
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.index import Index, Occurrence, load_word_means
from elmokit.index.exact import centred
from elmokit.text import Sentence

CLOSE = 5  # words offered for one that is not there


@dataclass(frozen=True, slots=True)
class Context:
    """An occurrence in the corpus; of `copies` of its sentence, the most similar occurrence is shown."""

    occurrence: Occurrence
    copies: int

    @property
    def score(self) -> float:
        return self.occurrence.score

    @property
    def left(self) -> str:
        return self.occurrence.text[: self.occurrence.start]

    @property
    def right(self) -> str:
        return self.occurrence.text[self.occurrence.end :]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What is nearest to a word in its sentence."""

    sentence: Sentence
    position: int
    contexts: tuple[Context, ...]
    static: tuple[tuple[str, float], ...]  # words by their one vector, whatever the sentence; empty if it has none

    @property
    def word(self) -> str:
        return self.sentence.tokens[self.position]


def find_neighbours(
    index: Index,
    encoder: Encoder,
    sentence: str | Sentence,
    *,
    word: str | None = None,
    position: int | None = None,
    k: int = 10,
    same_word: bool = False,
    exact: bool = False,
    static: WordTable | None = None,
    allow_other_encoder: bool = False,
) -> Neighbours:
    """The k contexts of the corpus that are most like a word in its sentence, and its k static neighbours.

    word, position  which word of the sentence: as it is spelled (or in any case), and by its number among the
                    tokens, counted from 0, if it occurs more than once
    same_word       only contexts of the same word
    exact           compare all vectors, even if there is an approximate index
    allow_other_encoder  go on, with a warning, if the index was made with another model of the same form
    static          vectors for the static neighbours; default the means of each word's vectors over the index

    Copies of a sentence count once, and copies of the given sentence not at all.
    """
    if k < 1:
        raise InputError(f"k is {k}; at least 1 context is to be found")
    index.manifest.check_encoder(encoder, index.folder, allow_other=allow_other_encoder)
    given = encoder.tokenizer.tokenize(sentence) if isinstance(sentence, str) else sentence
    place = locate(given, word=word, position=position)
    vector = encoder.encode_tokens(given, layers=index.settings.layers)[place].astype(np.float32)  # (D,)
    contexts = _contexts(index, vector, given, given.tokens[place] if same_word else None, k=k, exact=exact)
    table = load_word_means(index) if static is None else static
    near = static_neighbours(table, given.tokens[place], k=k) if table is not None else ()
    return Neighbours(given, place, contexts, near)


def locate(sentence: Sentence, *, word: str | None = None, position: int | None = None) -> int:
    """The position of the chosen word among the tokens."""
    tokens = sentence.tokens
    shown = " ".join(f"{token}({t})" for t, token in enumerate(tokens[:40])) or "none"
    if position is not None:
        if not 0 <= position < len(tokens):
            raise InputError(f"the sentence has no word {position}; its words, counted from 0, are: {shown}")
        if word is not None and tokens[position].casefold() != word.casefold():
            raise InputError(f"word {position} is {tokens[position]!r}, not {word!r}; the words are: {shown}")
        return position
    if word is None:
        raise InputError("neither a word nor a position was given; say which word of the sentence is meant (--word)")
    found = [t for t, token in enumerate(tokens) if token == word]
    found = found or [t for t, token in enumerate(tokens) if token.casefold() == word.casefold()]
    if not found:
        raise InputError(f"{word!r} is not a word of the sentence{_offer(word, tokens)}; its words are: {shown}")
    if len(found) > 1:
        places = ", ".join(map(str, found))
        raise InputError(f"{word!r} occurs more than once; choose its position (--position) out of {places}")
    return found[0]


def static_neighbours(table: WordTable, word: str, *, k: int = 10) -> tuple[tuple[str, float], ...]:
    """The words whose one vector is nearest, with cosines from the table's mean; none for a word it does not have."""
    own = table.vector(word)
    if own is None:
        own = table.vector(word.lower())
    if own is None:
        return ()
    query = centred(own[None], table.mean)[0]  # (D,)
    scores = np.concatenate([centred(rows, table.mean) @ query for _, rows in table.blocks()])  # (V,)
    order = np.lexsort((np.arange(len(scores)), -scores))
    near = [(table.words[row], float(scores[row])) for row in order[: 2 * k + 2].tolist()]
    return tuple((other, score) for other, score in near if other.casefold() != word.casefold())[:k]


def require_word(index: Index, word: str) -> list[str]:
    """The word as the index spells it, or an error that offers what comes close."""
    spelled = index.spelled(word)
    if not spelled:
        raise InputError(f"{word!r} is not in {index.folder}{_offer(word, list(index.words))}")
    return spelled


def _contexts(
    index: Index, vector: np.ndarray, given: Sentence, word: str | None, *, k: int, exact: bool
) -> tuple[Context, ...]:
    rows = None
    if word is not None:
        rows = np.concatenate([index.rows_of(spelling) for spelling in require_word(index, word)])
    own = _folded(given.text if given.text is not None else " ".join(given.tokens))
    limit = len(index) if rows is None else len(rows)
    wanted = 3 * k + 8
    while limit:
        found = index.search(vector, k=min(wanted, limit), exact=exact, rows=rows)
        best: dict[str, Occurrence] = {}
        copies: Counter[str] = Counter()
        seen: set[tuple[int, int]] = set()
        for row, score in zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True):
            if row < 0 or (sentence := index.sentence_of(row)) in seen:  # a long one is read once
                continue
            seen.add(sentence)
            occurrence = index.occurrence(row, score)
            text = _folded(occurrence.text)
            best.setdefault(text, occurrence)
            copies[text] += 1
        best.pop(own, None)
        if len(best) >= k or wanted >= limit:
            return tuple(Context(hit, copies[text]) for text, hit in list(best.items())[:k])
        wanted *= 4
    return ()


def _folded(text: str) -> str:
    return " ".join(text.split())


def _offer(word: str, known: "tuple[str, ...] | list[str]") -> str:
    folded: dict[str, str] = {}
    for other in known:
        folded.setdefault(other.casefold(), other)
    close = [folded[name] for name in get_close_matches(word.casefold(), folded, n=CLOSE)]
    return f"; did you mean {', '.join(map(repr, close))}?" if close else ""
