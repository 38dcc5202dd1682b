"""Raw text to a prepared corpus: words counted and numbered, sentences as shards on disk."""

from elmokit.pretrain.corpus.text import Corpus

__all__ = ["Corpus"]
