"""`OnnxElmo`: an exported model at work without torch: onnxruntime, NumPy, and elmokit's own text and characters.

elmokit export MODEL -o exported/

from elmokit.integrations.onnx import OnnxElmo

elmo = OnnxElmo("exported")
elmo.encode("One sentence.")                # (D,)
elmo.encode_tokens(["A sentence.", "B."])   # [(T, D), ...]
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.batch import build_batch, in_order, plan_batches
from elmokit.errors import InputError
from elmokit.export.described import Description
from elmokit.export.session import CPU, OnnxSession
from elmokit.formats.given import Given, Request, read_request
from elmokit.layers import LayerChoice, Vectors, unit_rows
from elmokit.text import DeferredTokenizer, Sentence, Tokenizer

__all__ = ["OnnxElmo", "OnnxEmbedding"]

BATCH_TOKENS = 1024  # positions per batch: past it the products of all steps outgrow the caches
AHEAD = 8  # batches read ahead, so that sentences of like length run together


class OnnxEmbedding(NamedTuple):
    """One sentence and its vectors."""

    sentence: Sentence
    vectors: Vectors  # (T, D), or (L, T, D) for layers="all"


class OnnxElmo:
    """A folder made by `elmokit export --to onnx`, with the calls of `Elmo`.

    What may be given is what `Elmo` takes; see `elmokit.formats.given`. `layers` is in the grammar of `elmokit.layers`.
    The vectors are those of `Elmo` to 1e-5, whatever the batch and from any number of threads.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None, providers: Sequence[str] = CPU) -> None:
        """`threads=None` leaves the number to onnxruntime; `providers` are its names of places to run."""
        self.folder = Path(folder).expanduser()
        self.described = Description.read(self.folder)
        if self.described.kind != "onnx":
            raise InputError(f"{self.folder}: holds {self.described.file}, not an ONNX model; export it with --to onnx")
        self.codec = self.described.codec.build(self.described.max_characters)
        named = self.described.tokenizer, self.described.tokenizer_version
        self.tokenizer: Tokenizer = DeferredTokenizer(*named)  # the one that the model was trained with
        path = self.folder / self.described.file
        self.session = OnnxSession(path, self.described, threads=threads, providers=providers)

    @property
    def width(self) -> int:
        """D, the size of one layer's vector."""
        return self.described.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        """One per layer, the token layer first."""
        return self.described.layer_names

    @property
    def depth(self) -> int:
        """L, the number of layers."""
        return len(self.layer_names)

    def encode(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "average",
        batch_tokens: int = BATCH_TOKENS,
        normalise: bool = False,
    ) -> Vectors:
        """One vector per sentence, the mean over its tokens: (N, D), or (D,) for one string; zero for an empty one."""
        request = read_request(sentences, tokenizer=self.tokenizer)
        found = [
            made.vectors.sum(axis=-2) / max(len(made.sentence), 1)
            for made in self._run(request, layers=layers, batch_tokens=batch_tokens)
        ]
        if not found:
            depth = (self.depth,) if LayerChoice.parse(layers).kind == "all" else ()
            return np.zeros((0, *depth, LayerChoice.parse(layers).width(self.depth, self.width)), dtype=np.float32)
        vectors = unit_rows(np.stack(found)) if normalise else np.stack(found)  # (N, D)
        return vectors[0] if request.single else vectors

    def encode_tokens(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "average",
        batch_tokens: int = BATCH_TOKENS,
        normalise: bool = False,
    ) -> Vectors | list[Vectors]:
        """One vector per token: a list of (T, D), or (T, D) for one string."""
        request = read_request(sentences, tokenizer=self.tokenizer)
        made = self._run(request, layers=layers, batch_tokens=batch_tokens, normalise=normalise)
        found = [embedding.vectors for embedding in made]
        return found[0] if request.single else found

    def encode_layers(self, sentences: Given, *, batch_tokens: int = BATCH_TOKENS) -> Vectors | list[Vectors]:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string; layer 0 knows no context."""
        return self.encode_tokens(sentences, layers="all", batch_tokens=batch_tokens)

    def stream(
        self,
        sentences: Given,
        *,
        layers: str | int | LayerChoice = "average",
        batch_tokens: int = BATCH_TOKENS,
        normalise: bool = False,
    ) -> Iterator[OnnxEmbedding]:
        """`encode_tokens` for input of any length: (sentence, vectors) pairs in input order, in bounded memory."""
        request = read_request(sentences, tokenizer=self.tokenizer)
        return self._run(request, layers=layers, batch_tokens=batch_tokens, normalise=normalise)

    def _run(
        self, request: Request, *, layers: str | int | LayerChoice, batch_tokens: int, normalise: bool = False
    ) -> Iterator[OnnxEmbedding]:
        if batch_tokens < 1:
            raise InputError(f"batch_tokens is {batch_tokens}; at least 1 is needed")
        choice = LayerChoice.parse(layers)
        choice.indices(self.depth)  # a layer that is not there is named before anything runs

        def run() -> Iterator[tuple[int, OnnxEmbedding]]:
            for batch in plan_batches(request.sentences, batch_tokens=batch_tokens, window=AHEAD):
                values = self.session.layers(build_batch([sentence for _, sentence in batch], self.codec))  # (L,B,T,D)
                for row, (position, sentence) in enumerate(batch):
                    chosen = choice.apply(values[:, row, 1 : len(sentence) + 1])  # without boundaries and padding
                    vectors = unit_rows(chosen) if normalise else chosen.copy()  # not a view of the whole batch
                    yield position, OnnxEmbedding(sentence, vectors)

        return in_order(run())
