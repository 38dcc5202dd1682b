"""Text to sentences of tokens, with offsets."""

from collections.abc import Sequence
from functools import cached_property

from elmokit.errors import InputError
from elmokit.text._custom import NormalisedTokenizer, load_own, runs_code
from elmokit.text._unicode_2 import UnicodeTokenizer2
from elmokit.text.abbreviations import ABBREVIATIONS, parse_lists
from elmokit.text.english import EnglishTokenizer
from elmokit.text.sentence import Sentence, Tokenizer, WhitespaceTokenizer, unescape_treebank
from elmokit.text.unicode import UnicodeTokenizer

__all__ = ["TOKENIZERS", "Sentence", "Tokenizer", "load_tokenizer", "unescape_treebank"]

_KINDS: tuple[type[Tokenizer], ...] = (
    EnglishTokenizer,
    UnicodeTokenizer,
    UnicodeTokenizer2,
    WhitespaceTokenizer,
)  # of each name, the first version is what the name alone means: text is cut as it was before
TOKENIZERS = tuple(dict.fromkeys(kind.name for kind in _KINDS))
GRAMMAR = (
    f"{', '.join(TOKENIZERS)}, or unicode@2; with +nfc, +lower, +digits, +abbreviations:FILE after it; "
    "python:package.module:function; command:PROGRAM"
)


def load_tokenizer(name: str, version: int | None = None) -> Tokenizer:
    """The tokenizer of that name. With `version`, only that version will do: another would cut words elsewhere.

    english, unicode, whitespace   as they are in this package; unicode@2 names a version
    unicode@2+nfc+lower+digits     tokens composed (NFC), in small letters, digits as 0
    unicode@2+abbreviations:FILE   with lists that `elmokit tokenize --learn FILE` made; they are kept in the name
    python:package.module:name     a function that is given text and gives tokens, or sentences of tokens
    command:program --option       a program that reads text and writes a sentence per line, tokens between spaces
    """
    if runs_code(name):
        return _required(load_own(name), version)
    base, *changes = name.split("+")
    base, at, number = base.partition("@")
    if at and not number.isdecimal():
        raise InputError(f"no tokenizer {name!r}; expected a version after the @, as in unicode@2")
    asked = int(number) if at else version
    known = [kind for kind in _KINDS if kind.name == base]
    if not known:
        raise InputError(f"no tokenizer {name!r}; available are {GRAMMAR}")
    lists = [change for change in changes if change.startswith(ABBREVIATIONS)]
    changes = [change for change in changes if change not in lists]
    kind = next((kind for kind in known if asked is None or kind.version == asked), known[-1])
    if lists and (len(lists) > 1 or kind is not UnicodeTokenizer2):
        raise InputError(f"tokenizer {name[:80]!r}; abbreviations are learnt once, for unicode@2")
    found: Tokenizer = UnicodeTokenizer2(parse_lists(lists[0])) if lists else kind()
    return _required(NormalisedTokenizer(found, changes) if changes else found, asked)


def _required(tokenizer: Tokenizer, version: int | None) -> Tokenizer:
    if version is not None and version != tokenizer.version:
        raise InputError(
            f"tokenizer {tokenizer.name!r} version {version} was asked for, but this elmokit has version "
            f"{tokenizer.version}, which may cut text elsewhere; install the elmokit release that the model was saved "
            f"with, or tokenise with it and pass tokens instead of text"
        )
    return tokenizer


class DeferredTokenizer:
    """A tokenizer by name and version, loaded when the first text comes: tokenised input never needs it."""

    def __init__(self, name: str, version: int) -> None:
        self.name, self.version = name, version

    @cached_property
    def loaded(self) -> Tokenizer:
        if runs_code(self.name):  # a model may come from anywhere: what it names is not run unasked
            raise InputError(
                f"the model was trained with the tokenizer {self.name!r}, which runs code on this machine; if you "
                f"trust it, say so with tokenizer={self.name!r} (--tokenizer), or give tokens instead of text"
            )
        return load_tokenizer(self.name, self.version)

    def tokenize(self, text: str) -> Sentence:
        return self.loaded.tokenize(text)

    def split(self, text: str) -> Sequence[Sentence]:
        return self.loaded.split(text)
