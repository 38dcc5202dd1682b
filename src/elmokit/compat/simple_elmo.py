"""simple_elmo's `ElmoModel`: vectors of tokenised texts as padded float64 arrays, and unit vectors of whole texts.

Each call starts from zero state; inside a call, state goes on from batch to batch by row, and with `warmup` the first
batch runs once before. That is what simple_elmo computed, and these vectors equal its own. `ElmoModel(stateful=False)`
makes every text start from zero, whatever its batch.

Not carried over, because they were faults there:
- `get_elmo_vector_average` averaged over padding too; here over the words alone.
- its layers="all" mixed layers and words up (it reshaped where it had to transpose); here row k is layer k.
- in `get_elmo_vectors`, layer 0 of padding was not zero; here all padding is.
- a vocabulary without <S> or </S> made one of its words look like a boundary; here words are themselves.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.compat.vocabulary import Vocabulary
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.formats.given import token_sentence
from elmokit.lm import LanguageModel
from elmokit.weights import load_pretrained

__all__ = ["ElmoModel"]

LAYERS = ("average", "top", "all")
Array = NDArray[np.float64]


class ElmoModel:
    """Empty until `load` is called."""

    def __init__(self, *, stateful: bool = True) -> None:
        self.stateful = stateful
        self.batch_size = 32
        self.vocab: Vocabulary | None = None
        self.logger = logging.getLogger(__name__)
        self._elmo: Elmo | None = None
        self._lm: LanguageModel | None = None

    @property
    def elmo(self) -> Elmo:
        """The encoder behind it."""
        if self._elmo is None:
            raise InputError("no model is loaded yet; call load(path) first")
        return self._elmo

    def load(self, directory: str | Path, max_batch_size: int = 32, limit: int = 100, full: bool = False) -> str:
        """Any model that elmokit reads: a folder, a .zip, a hub id. `full` also loads the output layer.

        `limit`, how many words simple_elmo kept ready, has no effect: words are kept as they come.
        """
        if max_batch_size < 1:
            raise InputError(f"max_batch_size is {max_batch_size}; at least 1 text per batch is needed")
        pretrained = load_pretrained(directory, softmax=full)
        self._lm = LanguageModel(pretrained) if full else None
        self._elmo = Elmo(pretrained, dtype="float32")
        self.batch_size = max_batch_size
        self.vocab = Vocabulary(self._lm.vocabulary) if self._lm else None
        self.max_chars = pretrained.config.tokens.max_characters
        self.vector_size = self._elmo.width
        self.n_layers = len(self._elmo.layer_names)
        return "The model is now loaded."

    def get_elmo_vectors(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> Array:
        """(N, T, D) for "average" and "top", (N, L, T, D) for "all"; T is the longest text, padding is zero.

        `session` was TensorFlow's; it has no effect.
        """
        found = self._layers(texts, warmup=warmup, layers=layers)  # each (n, T, D)
        shape = (len(found), self._depth(layers), max(map(len, texts), default=0), self.vector_size)
        vectors = np.zeros(shape)  # (N, n, T, D)
        for row, values in zip(vectors, found, strict=True):
            row[:, : values.shape[1]] = values
        return vectors if layers == "all" else vectors[:, 0]

    def get_elmo_vector_average(
        self, texts: Sequence[Sequence[str]], warmup: bool = True, layers: str = "average", session: Any = None
    ) -> Array:
        """The mean over each text's words, scaled to length 1: (N, D), or (N, L, D) scaled as a whole.

        A text without words has a zero vector.
        """
        pooled = np.zeros((len(texts), self._depth(layers), self.vector_size))  # (N, n, D)
        for row, values in zip(pooled, self._layers(texts, warmup=warmup, layers=layers), strict=True):
            if values.shape[1]:
                mean = values.astype(np.float64).mean(axis=1)  # (n, D)
                row[:] = mean / (np.linalg.norm(mean) or 1.0)
        return pooled if layers == "all" else pooled[:, 0]

    def get_elmo_substitutes(
        self, data: Sequence[str], topn: int = 3, nodelimiters: bool = True
    ) -> list[list[dict[str, Any]]]:
        """For each word of each text (split at white space), the likeliest words from left and from right.

        Needs `load(..., full=True)` and a model with its output layer. Best word first; "logp" is the natural logarithm
        of its probability among all words, that of the word itself too, where it is among the best. With
        `nodelimiters` boundaries come last, with minus infinity. Each side is read whole (simple_elmo read one word of
        it and gave unscaled scores).
        """
        if self._lm is None:
            raise InputError("substitutes need the output layer; load the model with full=True")
        if topn < 1:
            raise InputError(f"topn is {topn}; expected at least 1 word")
        found = []
        for text in data:
            words = text.split()
            sides = self._lm.place_scores(words) if words else {}
            best = {side: self._best(scores, topn, nodelimiters) for side, scores in sides.items()}
            found.append([{"word": word, **{side: best[side][k] for side in best}} for k, word in enumerate(words)])
        return found

    def _best(self, scores: Tensor, topn: int, nodelimiters: bool) -> list[dict[str, list[Any]]]:
        """For each place of (T, V) log probabilities."""
        assert self._lm is not None
        if nodelimiters:
            scores = scores.clone()
            scores[:, [self._lm.output.begin, self._lm.output.end]] = -torch.inf
        values, ids = scores.double().topk(min(topn, scores.shape[1]), dim=1)
        return [
            {
                "candidates": row,
                "candidate_words": [self._lm.vocabulary[number] for number in row],
                "logp": [round(value, 4) for value in logp],
            }
            for row, logp in zip(ids.tolist(), values.tolist(), strict=True)
        ]

    def _depth(self, layers: str) -> int:
        if layers not in LAYERS:
            raise InputError(f"layers is {layers!r}; expected one of {', '.join(LAYERS)}")
        return len(self.elmo.layer_names) if layers == "all" else 1

    def _layers(self, texts: Sequence[Sequence[str]], *, warmup: bool, layers: str) -> list[NDArray[np.floating[Any]]]:
        """One (n, T, D) array per text; n is 1 unless all layers are asked for."""
        self._depth(layers)
        sentences = [token_sentence(text, k) for k, text in enumerate(texts)]
        if not self.stateful:
            return self.elmo.encode_layers(sentences, layers=layers)
        batches = [sentences[k : k + self.batch_size] for k in range(0, len(sentences), self.batch_size)]
        carried = self.elmo.carry()
        if warmup and batches:
            carried.run(batches[0])
        return [values for batch in batches for values in carried.encode_layers(batch, layers=layers)]
