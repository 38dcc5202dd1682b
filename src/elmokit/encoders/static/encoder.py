"""`Static`: word2vec, GloVe and fastText vectors as an encoder of one layer, which knows no context.

glove = Static.from_pretrained("glove.6B.100d.txt")
glove.encode_tokens("One vector per word.")     # (5, 100)
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from elmokit.batch import cut_stream
from elmokit.encoders._transfers import cut
from elmokit.encoders.batches import BatchRunner, Placed
from elmokit.encoders.calls import Call, Shape
from elmokit.encoders.encoder import Context, Encoder, digest_of
from elmokit.encoders.results import Embedding, pooled
from elmokit.encoders.static._fasttext import FastTextTable
from elmokit.encoders.static.load import load_table, table_of
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.layers import LayerStack, Vectors, unit_rows
from elmokit.native.rows import take_or_zero
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

    def _build(self, device: torch.device, dtype: torch.dtype) -> "StaticRunner":
        return StaticRunner(self, device, dtype)

    def _results(
        self, sentences: Iterator[Sentence], call: Call, shape: Shape, *, normalise: bool, lend: bool
    ) -> Iterator[Embedding]:
        """On a CPU, in float32, the rows themselves, without batches, padding and torch.

        A call is then so short that threads mostly leave the interpreter to each other between calls, not within one.
        """
        runner, layers = call.runner, call.choice.layers
        table = call.choice.mix is None and layers.kind != "weights" and layers.indices(self.depth) == [0]
        if not (table and runner.device.type == "cpu" and runner.dtype == torch.float32):
            return super()._results(sentences, call, shape, normalise=normalise, lend=lend)

        def look_up(batch: list[Placed]) -> list[Vectors]:
            rows = self.vectors([word for _, sentence in batch for word in sentence.tokens])  # (N, D)
            made = cut(rows, [len(sentence.tokens) for _, sentence in batch])
            if shape is pooled:
                made = [part.sum(axis=0) / np.float32(max(len(part), 1)) for part in made]  # (D,)
            if normalise:
                made = [unit_rows(part) for part in made]
            return [part[None] for part in made] if layers.kind == "all" else made

        return (
            Embedding(sentence, vectors)
            for stretch in cut_stream(sentences, tokens=call.budget)
            for part, made in runner.fitted(list(enumerate(stretch)), look_up)
            for (_, sentence), vectors in zip(part, made, strict=True)
        )

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
            lost = np.array([vector is None for vector in found], dtype=bool)  # (n,)
            rows = np.zeros((len(words), self.width), dtype=np.float32)
            rows[~lost] = [vector for vector in found if vector is not None] or rows[~lost]
        else:
            places = self.table.rows(words)
            rows, missing = take_or_zero(self.table.vectors, places)
            if missing and self.fallback == "lower":
                again = np.flatnonzero(places < 0)
                places[again] = self.table.rows([words[k].lower() for k in again.tolist()])
                rows, missing = take_or_zero(self.table.vectors, places)
            if not missing:
                return rows
            lost = places < 0
        if lost.any():
            rows[lost] = self.table.mean if self.unknown_words == "mean" else 0
            if self.unknown_words == "error":
                word = words[int(np.argmax(lost))]
                raise InputError(f"{self.source}: no vector for {word!r}; choose unknown='zero' or 'mean' to go on")
        return rows


class StaticRunner(BatchRunner):
    """Looks each distinct word of a batch up once."""

    def __init__(self, encoder: Static, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype)
        self.encoder = encoder

    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        words = [word for sentence in sentences for word in sentence.tokens]
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)  # (B,)
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        values = np.zeros((*mask.shape, self.encoder.width), dtype=np.float32)  # (B, T, D)
        values[mask] = self.encoder.vectors(words)
        made = torch.from_numpy(values).to(self.device, self.dtype)
        return LayerStack(made[None], torch.from_numpy(mask).to(self.device), NAMES)
