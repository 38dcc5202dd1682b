"""Which tokenizer a model runs with: the one it was trained with, unless the user says otherwise in so many words."""

from collections.abc import Sequence
from functools import cached_property

from elmokit.errors import InputError
from elmokit.text import Sentence, Tokenizer, load_tokenizer
from elmokit.weights import Pretrained

# Files of the older tools do not say how their text was cut. The official models read English; ManyLangs, anything.
DEFAULTS = {"elmokit": "english", "official": "english", "manylangs": "unicode"}


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


def choose_tokenizer(pretrained: Pretrained, asked: str | Tokenizer | None, *, allow_other: bool) -> Tokenizer:
    """The model's own, or the one asked for if it is the same, if the model names none, or if another is allowed."""
    own = pretrained.tokenizer
    if asked is None:
        if own is None:
            return load_tokenizer(DEFAULTS[pretrained.origin])
        return DeferredTokenizer(own.name, own.version)
    chosen = load_tokenizer(asked) if isinstance(asked, str) else asked
    if own is not None and (chosen.name, chosen.version) != (own.name, own.version) and not allow_other:
        raise InputError(
            f"tokenizer {chosen.name!r} version {chosen.version} was asked for, but {pretrained.source or 'the model'} "
            f"was trained with {own.name!r} version {own.version} and would see words it never met; leave tokenizer "
            f"out, give tokens instead of text, or pass allow_other_tokenizer=True"
        )
    return chosen
