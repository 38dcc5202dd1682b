"""One word in several contexts: how alike its vectors are, layer by layer."""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from elmokit.encoders.results import Vectors
from elmokit.errors import InputError
from elmokit.layers import cosine
from elmokit.text import Sentence

Place = tuple[int, int]  # the number of a sentence, and of a token in it


class WordComparison(NamedTuple):
    """Two places of a word, and the cosines of their vectors by layer, the average of the layers last."""

    word: tuple[str, str]
    sentence: tuple[int, int]
    position: tuple[int, int]
    cosines: dict[str, float]


def find_word(sentences: Sequence[Sentence], word: str, *, match_case: bool = False) -> list[Place]:
    """Every place of the word, in any case unless `match_case`. Each sentence must have one."""
    places = [(s, t) for s, sentence in enumerate(sentences) for t in _occurrences(sentence, word, s, match_case)]
    if len(places) < 2:
        raise InputError(f"{word!r} occurs only once; give two sentences with it, or one that has it twice")
    return places


def compare_word(
    sentences: Sequence[Sentence], layers: Sequence[Vectors], places: Sequence[Place], *, names: Sequence[str]
) -> list[WordComparison]:
    """All pairs of places; `layers` holds (L, T, D) for each sentence, `names` a name for each layer."""
    found = []
    for a, b in combinations(places, 2):
        first, second = (layers[s][:, t] for s, t in (a, b))  # (L, D) each
        each = [cosine(x, y) for x, y in zip(first, second, strict=True)]
        cosines = [*each, cosine(first.mean(axis=0), second.mean(axis=0))]
        words = sentences[a[0]].tokens[a[1]], sentences[b[0]].tokens[b[1]]
        named = dict(zip([*names, "average"], cosines, strict=True))
        found.append(WordComparison(words, (a[0], b[0]), (a[1], b[1]), named))
    return found


def _occurrences(sentence: Sentence, word: str, number: int, match_case: bool) -> list[int]:
    folded = word.casefold()
    same = (token == word or (not match_case and token.casefold() == folded) for token in sentence.tokens)
    found = [t for t, here in enumerate(same) if here]
    if not found:
        words = " ".join(sentence.tokens[:40]) or "none"
        raise InputError(f"{word!r} is not a word of sentence {number + 1}; its words are: {words}")
    return found
