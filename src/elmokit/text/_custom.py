"""Tokenizers around others: normalised tokens, a function of the user's, a program of the user's.

A tokenizer is remembered by its name and version alone, so what is needed to find it again stands in its name:

unicode+nfc+lower+digits     the tokens of `unicode`, changed: composed (NFC), in small letters, every digit a 0
python:package.module:name   a function: text in, a list of tokens out, or a list of sentences, each a list of tokens
command:program --option     a program: text in on standard input, a sentence per line out, tokens between spaces
"""

import importlib
import shlex
import subprocess
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from elmokit.errors import InputError
from elmokit.text.sentence import Sentence, Tokenizer

PYTHON, COMMAND = "python:", "command:"
SECONDS = 300  # that a program may take for one text


def _zeros(token: str) -> str:
    return "".join("0" if character.isdigit() else character for character in token)


NORMALISATIONS: dict[str, Callable[[str], str]] = {
    "nfc": lambda token: unicodedata.normalize("NFC", token),
    "lower": str.lower,
    "digits": _zeros,
}


class NormalisedTokenizer:
    """Tokens of another tokenizer, changed; the offsets are those of the text as it was given."""

    def __init__(self, base: Tokenizer, changes: Sequence[str]) -> None:
        for change in changes:
            if change not in NORMALISATIONS:
                known = ", ".join(NORMALISATIONS)
                raise InputError(
                    f"no normalisation {change!r}; available are {known}; unicode@2 has abbreviations:FILE"
                )
        ordered = [change for change in NORMALISATIONS if change in changes]  # one name for one behaviour
        self.base, self.changes = base, ordered
        self.name, self.version = "+".join([base.name, *ordered]), base.version

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains, with offsets into `text`."""
        return self._changed(self.base.tokenize(text))

    def split(self, text: str) -> list[Sentence]:
        """The sentences of the other tokenizer."""
        return [self._changed(sentence) for sentence in self.base.split(text)]

    def _changed(self, sentence: Sentence) -> Sentence:
        tokens = sentence.tokens
        for change in self.changes:
            tokens = tuple(map(NORMALISATIONS[change], tokens))
        return replace(sentence, tokens=tokens)


class OwnTokenizer:
    """A user's own: what `_cut` gives, as sentences. Tokens that stand in the text in order get their offsets."""

    version = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def _cut(self, text: str) -> list[list[str]]:
        raise NotImplementedError

    def tokenize(self, text: str) -> Sentence:
        """One sentence, whatever it contains."""
        return _placed(text, [token for tokens in self._cut(text) for token in tokens], 0, whole=True)

    def split(self, text: str) -> list[Sentence]:
        """The sentences as the tokenizer gives them."""
        found, at = [], 0
        for tokens in self._cut(text):
            if tokens:
                sentence = _placed(text, tokens, at)
                at = sentence.places[-1][1] if sentence.offsets is not None else at
                found.append(sentence)
        return found


class PythonTokenizer(OwnTokenizer):
    """A function by its import path; a `version` of its own is remembered."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        module, colon, attribute = name.removeprefix(PYTHON).partition(":")
        if not module or not colon or not attribute:
            raise InputError(f"tokenizer {name!r}; expected python:package.module:name")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"tokenizer {name!r} cannot be imported ({error}); install its package, or set PYTHONPATH to its folder"
            ) from error
        if not callable(found):
            raise InputError(f"tokenizer {name!r} is a {type(found).__name__}, expected a function")
        self.function = found
        self.version = int(getattr(found, "version", 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return PythonTokenizer, (self.name,)

    def _cut(self, text: str) -> list[list[str]]:
        try:
            found = self.function(text)
        except Exception as error:  # whatever a user's function may raise
            raise InputError(
                f"tokenizer {self.name!r} failed on {text[:40]!r}: {type(error).__name__}: {error}"
            ) from error
        return _sentences(found, self.name)


class CommandTokenizer(OwnTokenizer):
    """A program, started once for each text."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.command = shlex.split(name.removeprefix(COMMAND))
        if not self.command:
            raise InputError(f"tokenizer {name!r}; expected command:PROGRAM and its arguments")

    def _cut(self, text: str) -> list[list[str]]:
        given = text.encode("utf-8", "replace")
        try:
            done = subprocess.run(self.command, input=given, capture_output=True, timeout=SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"tokenizer {self.name!r} cannot run ({error})") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise InputError(f"tokenizer {self.name!r} ended with status {done.returncode}: {said[-1][:200]}")
        return [line.split() for line in done.stdout.decode("utf-8", "replace").splitlines()]


def runs_code(name: str) -> bool:
    """Whether a tokenizer of this name runs what is not part of elmokit."""
    return name.startswith((PYTHON, COMMAND))


def load_own(name: str) -> Tokenizer:
    """The user's tokenizer of this name."""
    return PythonTokenizer(name) if name.startswith(PYTHON) else CommandTokenizer(name)


def _sentences(found: Any, name: str) -> list[list[str]]:
    """What a function gave: tokens, or lists of tokens."""
    given = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else None
    if given is not None and all(isinstance(token, str) for token in given):
        return [given]
    if given is not None and all(isinstance(part, list | tuple) for part in given):
        parts = [list(part) for part in given]
        if all(isinstance(token, str) for part in parts for token in part):
            return parts
    raise InputError(f"tokenizer {name!r} gave {str(found)[:40]!r}; expected a list of tokens, or of lists of tokens")


def _placed(text: str, tokens: Sequence[str], at: int, *, whole: bool = False) -> Sentence:
    """With the places of the tokens in the text, if they stand there in order; empty tokens are left out."""
    tokens = [token for token in tokens if token.strip()]
    spans = []
    for token in tokens:
        begin = text.find(token, at)
        if begin < 0:
            return Sentence.of(tokens)
        at = begin + len(token)
        spans.append((begin, at))
    start = 0 if whole or not spans else spans[0][0]
    end = len(text) if whole or not spans else spans[-1][1]
    return Sentence.cut(text[start:end], [(a - start, b - start) for a, b in spans], start=start)
