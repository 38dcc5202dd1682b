"""What the Sentence view shows: the tokens of one or two sentences, and products of all their vectors.

The page computes every cosine itself, for any layer and any mix: with P[i, j, a, b] the product of layer i of token a
and layer j of token b, the mix with weights s has the product of a and b  gamma^2 * sum_ij s_i s_j P[i, j, a, b].
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from elmokit.analysis.neighbours import find_neighbours
from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.explore.steps import Progress, Steps, packed
from elmokit.index import Index
from elmokit.text import Sentence

MOST_NUMBERS = 4_000_000  # in one answer


def sentence_facts(sentence: Sentence) -> dict[str, Any]:
    """Text, and tokens with their places in it."""
    text = sentence.as_text
    tokens = [{"text": text[a:b], "start": a, "end": b} for a, b in sentence.spans]
    return {"text": text, "tokens": tokens}


def compare_sentences(encoder: Encoder, texts: Sequence[str]) -> Steps[dict[str, Any]]:
    """The tokens of each text, taken as one sentence, and the products of all their vectors, (L, L, N, N)."""
    sentences = [encoder.tokenizer.tokenize(text) for text in texts if text.strip()]
    count, depth = sum(map(len, sentences)), encoder.depth
    if count == 0:
        raise InputError("no word was given; expected one or two sentences")
    if (depth * count) ** 2 > MOST_NUMBERS:
        most = int(MOST_NUMBERS**0.5) // depth
        raise InputError(f"{count} words were given, more than can be compared at once; expected {most} at most")
    yield Progress(0, 1, model=True)
    layers = [array.astype(np.float32) for array in encoder.encode_layers(sentences)]  # (L, T, D) each
    joined = np.concatenate(layers, axis=1)  # (L, N, D)
    products = np.einsum("iad,jbd->ijab", joined, joined, optimize=True)  # (L, L, N, N)
    shown = [sentence_facts(sentence) for sentence in sentences]
    for facts, sentence in zip(shown, sentences, strict=True):
        for token, word in zip(facts["tokens"], sentence.tokens, strict=True):
            token["unknown"] = encoder.unknown(word)
    return {
        "sentences": shown,
        "layers": list(encoder.layer_names),
        "width": encoder.width,
        "products": packed(products),
    }


def nearest_words(index: Index, encoder: Encoder, text: str, position: int, *, k: int = 8) -> Steps[dict[str, Any]]:
    """The contexts of a corpus that are nearest to a token of a sentence, and the words by their mean vectors."""
    yield Progress(0, 1, model=True)
    found = find_neighbours(index, encoder, text, position=position, k=k)
    contexts = [
        {
            "word": c.occurrence.word,
            "left": c.left,
            "right": c.right,
            "score": c.score,
            "copies": c.copies,
        }
        for c in found.contexts
    ]
    words = [{"word": word, "score": score} for word, score in found.static]
    return {"word": found.word, "layers": index.settings.layers, "contexts": contexts, "words": words}
