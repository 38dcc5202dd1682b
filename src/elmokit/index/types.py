"""One vector per word out of an index: the mean of its occurrences, which is what static vectors would be here."""

import contextlib

import numpy as np

from elmokit.encoders.static.table import WordTable, read_table
from elmokit.errors import FormatError, InputError
from elmokit.index.exact import BLOCK
from elmokit.index.growth import locked
from elmokit.index.index import Index

MIN_COUNT = 5  # a mean of fewer is more accident than use
LIMIT = 50_000  # words, the most frequent


def word_means(index: Index, *, min_count: int = MIN_COUNT, limit: int = LIMIT) -> WordTable:
    """The mean vector of each word, as it is spelled, that stands there `min_count` times; the most frequent first."""
    view = index._view  # another thread may add text meanwhile
    words = [word for word, count in view.words.most_common(limit) if count >= min_count]
    if not words:
        raise InputError(f"no word stands {min_count} times in {index.folder}; it needs more text")
    place = {word: k for k, word in enumerate(words)}
    sums = np.zeros((len(words), index.manifest.width), dtype=np.float32)  # (V, D)
    for segment in view.segments:
        # (its own vocabulary,): the row in `sums`, or -1
        rows = np.array([place.get(word, -1) for word in segment.vocabulary], dtype=np.int64)
        kinds = rows[segment.word_ids]  # (n,)
        for at in range(0, len(segment), BLOCK):
            some = kinds[at : at + BLOCK]
            order = np.argsort(some, kind="stable")
            order = order[some[order] >= 0]
            if not len(order):
                continue
            vectors = segment.decode(at, at + BLOCK)[order]  # (n, D)
            starts = np.flatnonzero(np.diff(some[order], prepend=-1))  # of each word's stretch
            sums[some[order[starts]]] += np.add.reduceat(vectors, starts, axis=0)
    counts = np.array([view.words[word] for word in words], dtype=np.float32)  # (V,)
    return WordTable(words, sums / counts[:, None], f"means over {index.folder}")


def save_word_means(index: Index) -> None:
    """Store them beside the index, so that the next search need not read all of it."""
    path = index.folder / f"types-{len(index)}.safetensors"
    with locked(index.folder):
        if not path.exists() and any(count >= MIN_COUNT for count in index.words.values()):
            word_means(index).save(path)
        for old in index.folder.glob("types-*.safetensors"):
            if old != path:
                old.unlink()


def load_word_means(index: Index) -> WordTable | None:
    """Those stored for the index as it is, or made now; None where no word is frequent enough."""
    path = index.folder / f"types-{len(index)}.safetensors"
    if path.exists():
        with contextlib.suppress(FormatError):  # damaged: made again
            table = read_table(path)
            if table.width == index.manifest.width:
                return table
    frequent = any(count >= MIN_COUNT for count in index.words.values())
    return word_means(index) if frequent else None
