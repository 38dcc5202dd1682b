"""`Static`: word2vec, GloVe and fastText vectors as an encoder of one layer, which knows no context.

glove = Static.from_pretrained("glove.6B.100d.txt")
glove.encode_tokens("One vector per word.")     # (5, 100)
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from elmokit.encoders.batches import BatchRunner, Turn
from elmokit.encoders.encoder import Context, Encoder, digest_of
from elmokit.encoders.static._fasttext import FastTextTable
from elmokit.encoders.static.load import load_table, table_of
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.formats.given import Given
from elmokit.layers import LayerStack, Vectors
from elmokit.text import Sentence, Tokenizer, load_tokenizer

Unknown = Literal["zero", "mean", "error"]
Fallback = Literal["none", "lower"]
NAMES = ("static",)


class Static(Encoder):
    """One vector per word, whatever stands around it; `Encoder` tells what may be given and the options.

    fallback  where a word is not there as it is written: "lower" (the default) looks for it in lower case, "none" not
    unknown   what a word gets that is not there at all: "zero" (the default), "mean" (of all vectors), or "error"
    """

    def __init__(
        self,
        table: WordTable | FastTextTable,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer = "english",
        fallback: Fallback = "lower",
        unknown: Unknown = "zero",
    ) -> None:
        for what, chosen, names in (("fallback", fallback, Fallback), ("unknown", unknown, Unknown)):
            if chosen not in get_args(names):
                raise InputError(f"{what} {chosen!r} not understood; expected {', '.join(get_args(names))}")
        cut = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        super().__init__(cut, device=device, dtype=dtype)
        self.table, self.fallback, self.unknown_words = table, fallback, unknown
        self.turn = Turn()
        self.placed()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        cache: str | Path | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer = "english",
        fallback: Fallback = "lower",
        unknown: Unknown = "zero",
    ) -> "Static":
        """From a file: word2vec text or binary, GloVe, fastText .vec or .bin, or one that `WordTable.save` wrote."""
        return cls(
            load_table(source, cache=cache),
            device=device,
            dtype=dtype,
            tokenizer=tokenizer,
            fallback=fallback,
            unknown=unknown,
        )

    @classmethod
    def from_gensim(cls, vectors: Any, **options: Any) -> "Static":
        """From gensim's KeyedVectors in memory, or a model that has them; the options are those of `Static`."""
        return cls(table_of(vectors), **options)

    def _held(self, sentences: Given) -> AbstractContextManager[None]:
        """The turn: a call is short and nearly all Python, so threads would only take the interpreter from each other.

        Not while sentences are still to come: another thread may be the one that makes them.
        """
        return self.turn if isinstance(sentences, str | Sentence | list | tuple) else nullcontext()

    def _build(self, device: torch.device, dtype: torch.dtype) -> "StaticRunner":
        return StaticRunner(self, device, dtype)

    @property
    def width(self) -> int:
        """D, the size of a vector."""
        return self.table.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        return NAMES

    @property
    def context(self) -> Context:
        """None."""
        return "none"

    @property
    def source(self) -> str:
        return self.table.source

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all words and vectors, and of what unknown words get."""
        return digest_of((self.table.fingerprint, self.fallback, self.unknown_words), {})

    def find(self, word: str) -> Vectors | None:
        """The word's vector (D,), by `fallback` if need be; None for one that is not there."""
        found = self.table.vector(word)
        if found is None and self.fallback == "lower":
            found = self.table.vector(word.lower())
        return found

    def unknown(self, word: str) -> bool:
        """Whether the word has no vector of its own."""
        return self.find(word) is None

    def vectors(self, words: Sequence[str]) -> Vectors:
        """A vector for every word, by `unknown` if need be. (n, D)"""
        if isinstance(self.table, FastTextTable):
            each = {word: self.find(word) for word in dict.fromkeys(words)}
            found = [each[word] for word in words]
            known = np.array([vector is not None for vector in found], dtype=bool)  # (n,)
            rows = np.zeros((len(words), self.width), dtype=np.float32)
            rows[known] = [vector for vector in found if vector is not None] or rows[known]
        else:
            places = self.table.rows(words)
            if self.fallback == "lower" and len(lost := np.flatnonzero(places < 0)):
                places[lost] = self.table.rows([words[k].lower() for k in lost.tolist()])
            known = places >= 0
            rows = np.asarray(self.table.vectors[np.maximum(places, 0)], dtype=np.float32)
            rows[~known] = 0
        if not known.all():
            if self.unknown_words == "mean":
                rows[~known] = self.table.mean
            elif self.unknown_words == "error":
                word = words[int(np.argmin(known))]
                raise InputError(f"{self.source}: no vector for {word!r}; choose unknown='zero' or 'mean' to go on")
        return rows


class StaticRunner(BatchRunner):
    """Looks each distinct word of a batch up once."""

    def __init__(self, encoder: Static, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype)
        self.encoder = encoder

    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        with self.encoder.turn:
            return self._stack(sentences)

    def _stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        words = [word for sentence in sentences for word in sentence.tokens]
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)  # (B,)
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        values = np.zeros((*mask.shape, self.encoder.width), dtype=np.float32)  # (B, T, D)
        values[mask] = self.encoder.vectors(words)
        made = torch.from_numpy(values).to(self.device, self.dtype)
        return LayerStack(made[None], torch.from_numpy(mask).to(self.device), NAMES)
