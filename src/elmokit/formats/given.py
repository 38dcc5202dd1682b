"""What users give to an encoder, as sentences: one rule for what a string, a list and a list of lists mean.

"one string"                  one sentence; the answer is its own, not a list
["a string", "another"]       sentences, each cut into words by the model's tokenizer
[["a", "sentence"], ["b"]]    sentences already cut into tokens
[Sentence, Sentence]          the same, as elmokit's own type
generators, columns           any iterable of strings, or of token lists, read once and never held as a whole;
                              of a table (pandas, polars, pyarrow, datasets) one column, not the table
Path("file.txt.gz")           a file: a line is a sentence; .jsonl, .conllu and .parquet by their names
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import InputError
from elmokit.formats.read import read_sentences
from elmokit.text import Sentence, Tokenizer
from elmokit.text.packed import SentenceStream

ACCEPTED = "a string, a list of strings (sentences), a list of token lists, Sentence objects, or a Path to a text file"

TEXT_COLUMNS = ("text", "sentence", "sentences", "texts", "content", "tokens")  # usual names

Given = str | Sentence | Path | Iterable[str] | Iterable[Sentence] | Iterable[list[str]] | Iterable[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Request:
    """The sentences asked for, and whether the user gave just one and wants its own answer."""

    sentences: Iterator[Sentence]
    single: bool
    total: int | None  # how many, where the input knows


def read_request(given: Any, *, tokenizer: Tokenizer, keep: Sequence[str] = ()) -> Request:
    """Whatever the user gave, as sentences in order; the tokenizer is used for text only, `keep` for files only."""
    if isinstance(given, str):
        return Request(iter([tokenizer.tokenize(given)]), True, 1)
    if isinstance(given, Sentence):
        return Request(iter([given]), True, 1)
    if isinstance(given, Path):
        return Request(read_sentences(given, tokenizer=tokenizer, keep=keep), False, None)
    if isinstance(given, SentenceStream):
        return Request(given, False, None)
    if (columns := _columns(given)) is not None:
        name = next((name for name in columns if name in TEXT_COLUMNS), columns[0] if columns else "text")
        raise InputError(
            f"cannot embed a table ({type(given).__name__} with columns {', '.join(columns)}): give the column that "
            f'holds the texts, as in encode(table["{name}"])'
        )
    if isinstance(given, bytes | Mapping | Set) or not isinstance(given, Iterable):
        raise InputError(f"cannot embed {_named(given)}; expected {ACCEPTED}")
    total = len(given) if isinstance(given, Sized) else None
    return Request(sentences_of(given, tokenizer=tokenizer), False, total)


def sentences_of(items: Iterable[Any], *, tokenizer: Tokenizer) -> Iterator[Sentence]:
    """Items all of one kind: strings, token lists or Sentences."""
    first: str | None = None
    for k, item in enumerate(items):
        if isinstance(item, str):
            kind, sentence = "a string", tokenizer.tokenize(item)
        elif isinstance(item, Sentence):
            kind, sentence = "a Sentence", item
        elif isinstance(item, list | tuple):
            kind, sentence = "a list of tokens", token_sentence(item, k)
        else:
            raise InputError(f"sentence {k} is {_named(item)}; expected a string, a list of tokens or a Sentence")
        if first is not None and kind != first:
            raise InputError(
                f"sentence {k} is {kind}, but those before it are each {first}; give all as strings or all as token "
                f"lists. One tokenised sentence goes inside a list: [['one', 'sentence']]"
            )
        first = kind
        yield sentence


def read_tokens(given: Sequence[Sequence[str] | Sentence]) -> list[Sentence]:
    """A batch for a network, whose words must be settled: token lists or Sentences, no text."""
    sentences = []
    for k, item in enumerate(given):
        if isinstance(item, str):
            raise InputError(f"sentence {k} is a string; a network takes token lists: [['one', 'sentence'], ['two']]")
        sentences.append(item if isinstance(item, Sentence) else token_sentence(item, k))
    return sentences


def token_sentence(tokens: Any, k: int) -> Sentence:
    """Sentence number k of a batch from its tokens, which must be strings."""
    if not isinstance(tokens, Iterable):
        raise InputError(f"sentence {k} is {_named(tokens)}; expected a list of tokens")
    given: tuple[Any, ...] = tuple(tokens)
    for t, token in enumerate(given) if set(map(type, given)) != {str} else ():
        if not isinstance(token, str):
            hint = "; a document is given as its sentences, one list level less" if isinstance(token, list) else ""
            raise InputError(f"token {t} of sentence {k} is {_named(token)}; expected a string{hint}")
    return Sentence.of(given)


def _columns(given: object) -> list[str] | None:
    """The names of a table's columns; None for anything else. Its library need not be installed."""
    names = getattr(given, "column_names", None)  # pyarrow, datasets
    if names is None:
        names = getattr(given, "columns", None)  # pandas, polars
    return None if names is None else [str(name) for name in names]


def _named(thing: object) -> str:
    shown = repr(thing)
    return f"{type(thing).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"
