"""Which tokenizer a model runs with: the one it was trained with, unless the user chooses another."""

from elmokit.errors import InputError
from elmokit.text import DeferredTokenizer, Tokenizer, load_tokenizer
from elmokit.weights import Pretrained

# Files of the older tools do not say how their text was cut. The official models read English; ManyLangs, anything.
DEFAULTS = {"elmokit": "english", "official": "english", "manylangs": "unicode"}


def choose_tokenizer(pretrained: Pretrained, given: str | Tokenizer | None, *, allow_other: bool) -> Tokenizer:
    """The model's own; or the one given, if it is the same, if the model names none, or if another is allowed."""
    own = pretrained.tokenizer
    if given is None:
        if own is None:
            return load_tokenizer(DEFAULTS[pretrained.origin])
        return DeferredTokenizer(own.name, own.version)
    chosen = load_tokenizer(given) if isinstance(given, str) else given
    if own is not None and (chosen.name, chosen.version) != (own.name, own.version) and not allow_other:
        raise InputError(
            f"tokenizer {chosen.name!r} version {chosen.version} was given, but {pretrained.source or 'the model'} "
            f"was trained with {own.name!r} version {own.version} and would see words it never met; leave tokenizer "
            f"out, give tokens instead of text, or pass allow_other_tokenizer=True"
        )
    return chosen
