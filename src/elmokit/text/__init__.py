"""Text to sentences of tokens, with offsets."""

from elmokit.text.sentence import Sentence, Tokenizer

__all__ = ["Sentence", "Tokenizer"]
