"""Static vectors and word means as gensim's KeyedVectors, both ways.

keyed = keyed_vectors(distil_words(elmo, words))    # or a Static, or an Index: the mean of each word's occurrences
keyed.most_similar("bank")
static = static_vectors(keyed)                      # back, as an encoder
"""

from typing import Any

import numpy as np

from elmokit.encoders import Static, WordTable
from elmokit.errors import InputError, MissingExtraError
from elmokit.index import Index, word_means

try:
    from gensim.models import KeyedVectors
except ImportError as error:
    raise MissingExtraError(f"gensim is needed ({error})", extra="gensim") from error

__all__ = ["keyed_vectors", "static_vectors"]


def keyed_vectors(source: WordTable | Static | Index, *, min_count: int = 1) -> Any:
    """gensim's KeyedVectors of a table of words, or of an index: the mean over all places where a word stands.

    `min_count` is for an index: words that stand there less often are left out. KeyedVectors know how often a word of
    an index stands there: `keyed.get_vecattr(word, "count")`.
    """
    counts: dict[str, int] = {}
    if isinstance(source, Index):
        counts = source.words
        table = word_means(source, min_count=min_count)
    else:
        found = source.table if isinstance(source, Static) else source
        if not isinstance(found, WordTable):
            raise InputError(f"{found.source}: has vectors for any word, not a table of them; distil_words makes one")
        table = found
    keyed = KeyedVectors(table.width, dtype=np.float32)
    keyed.add_vectors(list(table.words), np.array(table.vectors, dtype=np.float32))
    for word, count in counts.items():
        if word in keyed:
            keyed.set_vecattr(word, "count", count)
    return keyed


def static_vectors(keyed: Any, **options: Any) -> Static:
    """An encoder of KeyedVectors, or of a gensim model that has them; the options are those of `Static`."""
    return Static.from_gensim(keyed, **options)
