"""Text to sentences of tokens, with offsets."""

from elmokit.text.load import TOKENIZERS, load_tokenizer
from elmokit.text.sentence import Sentence, Tokenizer
from elmokit.text.treebank import unescape_treebank

__all__ = ["TOKENIZERS", "Sentence", "Tokenizer", "load_tokenizer", "unescape_treebank"]
