"""Text to sentences of tokens, with offsets."""

from collections.abc import Sequence
from functools import cached_property

from elmokit.errors import InputError
from elmokit.text.english import EnglishTokenizer
from elmokit.text.sentence import Sentence, Tokenizer, WhitespaceTokenizer, unescape_treebank
from elmokit.text.unicode import UnicodeTokenizer

__all__ = ["TOKENIZERS", "Sentence", "Tokenizer", "load_tokenizer", "unescape_treebank"]

_KINDS: tuple[type[EnglishTokenizer] | type[UnicodeTokenizer] | type[WhitespaceTokenizer], ...] = (
    EnglishTokenizer,
    UnicodeTokenizer,
    WhitespaceTokenizer,
)
TOKENIZERS = tuple(kind.name for kind in _KINDS)


def load_tokenizer(name: str, version: int | None = None) -> Tokenizer:
    """The tokenizer of that name. With `version`, only that version will do: another would cut words elsewhere."""
    for kind in _KINDS:
        if kind.name == name:
            if version is not None and version != kind.version:
                raise InputError(
                    f"tokenizer {name!r} version {version} was asked for, but this elmokit has version {kind.version}, "
                    f"which may cut text elsewhere; install the elmokit release that the model was saved with, or "
                    f"tokenise with it and pass tokens instead of text"
                )
            return kind()
    raise InputError(f"no tokenizer {name!r}; available are {', '.join(TOKENIZERS)}")


class DeferredTokenizer:
    """A tokenizer by name and version, loaded when the first text comes: tokenised input never needs it."""

    def __init__(self, name: str, version: int) -> None:
        self.name, self.version = name, version

    @cached_property
    def loaded(self) -> Tokenizer:
        return load_tokenizer(self.name, self.version)

    def tokenize(self, text: str) -> Sentence:
        return self.loaded.tokenize(text)

    def split(self, text: str) -> Sequence[Sentence]:
        return self.loaded.split(text)
