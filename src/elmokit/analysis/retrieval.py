"""The same word in the same sentence, read by two models: is it found again among all others?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.layers import Vectors, unit_rows
from elmokit.text import Sentence


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The share of tokens whose nearest vector in the other model is that of the same token, by layer."""

    layer: str
    at_1: float
    same_word: float  # the same among the tokens of the same word only, of those that have another
    tokens: int


def retrieve_tokens(
    first: Encoder, second: Encoder, sentences: Sequence[Sentence], *, tokens: int = 2000
) -> list[Retrieval]:
    """Tokens of the first model searched among those of the second, layer by layer; both read the same tokens.

    Vectors are compared by their cosines, each model's mean taken off. The first `tokens` words count.
    """
    if first.depth != second.depth or first.width != second.width:
        raise InputError(
            f"{first.source} has {first.depth} layers of {first.width}, {second.source} {second.depth} of "
            f"{second.width}; vectors of one size are compared: align one model to the other"
        )
    words: list[str] = []
    a, b = [], []
    for (sentence, one), (_, other) in zip(
        first.stream(sentences, layers="all"), second.stream(sentences, layers="all"), strict=True
    ):
        for t, token in enumerate(sentence.tokens):
            if any(map(str.isalnum, token)) and len(words) < tokens:
                words.append(token)
                a.append(one[:, t])
                b.append(other[:, t])
        if len(words) >= tokens:
            break
    if len(words) < 2:
        raise InputError("the sentences hold fewer than two words; give more of them")
    kinds = np.unique(words, return_inverse=True)[1]
    same = kinds[:, None] == kinds[None]  # (n, n)
    repeated = same.sum(axis=1) > 1
    found = []
    for layer, name in enumerate(first.layer_names):
        scores = _unit(np.stack(a)[:, layer]) @ _unit(np.stack(b)[:, layer]).T  # (n, n)
        own = np.arange(len(words))
        at_1 = _share(scores, scores[own, own])
        among = np.where(same, scores, -np.inf)
        same_word = _share(among[repeated], scores[own, own][repeated])
        found.append(Retrieval(name, at_1, same_word, len(words)))
    return found


def _share(scores: Vectors, own: Vectors) -> float:
    """How often none of a row's scores is larger than its own. A tie with another counts in part, as chance would."""
    if not len(own):
        return 0.0
    best, ties = (scores > own[:, None] + 1e-6).any(axis=1), (np.abs(scores - own[:, None]) <= 1e-6).sum(axis=1)
    return float(np.where(best, 0.0, 1 / np.maximum(ties, 1)).mean())


def _unit(rows: Vectors) -> Vectors:
    return unit_rows(rows - rows.mean(axis=0), least=1e-6)
