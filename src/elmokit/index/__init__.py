"""Nearest neighbours over the occurrences of words in a corpus: on disk, growing, exact or approximate."""

from elmokit.index.exact import Nearest
from elmokit.index.growth import ENGLISH_STOP_WORDS, GrowthReport
from elmokit.index.index import Index, Occurrence
from elmokit.index.settings import IndexSettings
from elmokit.index.types import load_word_means, save_word_means, word_means

__all__ = [
    "ENGLISH_STOP_WORDS", "GrowthReport", "Index", "IndexSettings", "Nearest", "Occurrence", "load_word_means",
    "save_word_means", "word_means",
]  # fmt: skip
