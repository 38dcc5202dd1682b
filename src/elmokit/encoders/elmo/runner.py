"""The biLM in one place: sentences to a `LayerStack` on one device, in one number type, with its word cache."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import index_words
from elmokit.chars import Codec, TypeRows
from elmokit.encoders._transfers import upload
from elmokit.encoders.batches import BatchRunner, Turn
from elmokit.encoders.elmo._cuda_graphs import CudaGraphs, wanted
from elmokit.encoders.elmo.word_cache import WordCache
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, State
from elmokit.text import Sentence


class Runner(BatchRunner):
    """Runs the biLM without gradients; each distinct word of a batch is encoded once, or taken from the cache."""

    def __init__(self, bilm: BiLM, codec: Codec, *, cache_words: int) -> None:
        self.bilm, self.codec = bilm, codec
        weight = next(bilm.tokens.parameters())
        super().__init__(weight.device, weight.dtype)
        width = bilm.config.lstm.projection_dim
        self.turn = Turn(self.device)
        self.cache = WordCache(cache_words, width=width, device=self.device, dtype=self.dtype, turn=self.turn)
        self.boundaries: Tensor | None = None  # (2, P) the vectors of sentence begin and end
        used = self.device.type == "cuda" and wanted()
        self.graphs = CudaGraphs(bilm, filling=codec.begin, turn=self.turn) if used else None

    @torch.no_grad()
    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        if self.graphs is None or not self.graphs.take(sentences):
            return self.layers(sentences)[0]
        words, index, lengths = index_words(sentences)
        vectors = self.word_vectors(words)  # (U, P)
        replayed = self.graphs.run(vectors, index, lengths)
        return (
            self.bilm.contextualise(vectors, upload(index, self.device), lengths)[0] if replayed is None else replayed
        )

    @torch.no_grad()  # not inference_mode: mixes are trained on these layers
    def layers(self, sentences: Sequence[Sentence], *, state: State | None = None) -> tuple[LayerStack, State]:
        """All layers with boundaries, and the state each row ends in."""
        words, index, lengths = index_words(sentences)
        vectors = self.word_vectors(words)  # (U, P)
        return self.bilm.contextualise(vectors, upload(index, self.device), lengths, state=state)

    def word_vectors(self, words: Sequence[str]) -> Tensor:
        """The two boundaries' vectors, then those of the words. (U, P)"""
        with self.turn:
            if self.boundaries is None:
                self.boundaries = self._encode_rows(np.stack([self.codec.begin, self.codec.end]))
            boundaries = self.boundaries
        return torch.cat([boundaries, self.cache.vectors(words, self._encode_words)]) if words else boundaries

    def forget_words(self) -> None:
        """Empty the word cache; needed after any change of the network's weights."""
        with self.turn:
            self.cache.clear()
            self.boundaries = None

    def _encode_words(self, words: Sequence[str]) -> Tensor:
        rows = self.codec.encode(words)  # (U, W)
        replayed = None if self.graphs is None else self.graphs.encode(rows)
        return self._encode_rows(rows) if replayed is None else replayed

    def _encode_rows(self, rows: TypeRows) -> Tensor:
        vectors: Tensor = self.bilm.tokens(upload(rows, self.device))  # (U, P)
        return vectors
