"""`Encoder`: sentences in, NumPy vectors out, the same calls whichever model runs: ELMo, BERT, GPT, static vectors."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import plan_batches
from elmokit.encoders.batches import BatchRunner, Built
from elmokit.encoders.places import FLOATS, batch_budget, pick_device, pick_dtype
from elmokit.encoders.results import Choice, Embedding, Shape, Vectors, per_sentence, pooled, run_batches
from elmokit.formats.given import Given, Request, read_request
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.mix import ScalarMix
from elmokit.text import Sentence, Tokenizer
from elmokit.weights.storage import digest_tensors

Layers = str | int | LayerChoice
Context = Literal["both", "left", "right", "none"]
AHEAD_BYTES = 256 << 20  # results held back at most while sentences of like length are brought together
SEES = {
    "both": "the words on both sides",
    "left": "the words to its left only",
    "right": "the words to its right only",
    "none": "no other word",
}


class Options(TypedDict, total=False):
    """The options that `encode`, `encode_tokens`, `encode_layers` and `stream` share; see `Encoder`."""

    layers: Layers | None
    mix: ScalarMix | None
    batch_tokens: int | None
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    progress: bool
    normalise: bool


class Encoder(ABC):
    """A model that turns sentences into vectors, one per word and layer; what every model in elmokit is to its users.

    What may be given stands in `elmokit.formats.given`: a string is one sentence and gets its own answer; a list of
    strings is a list of sentences; a tokenised sentence is a list of tokens inside a list; generators, dataset columns
    and `Path`s are read as streams. The options are the same everywhere:

    layers        which layers, in the grammar of `elmokit.layers`; default "average" ("all" for `encode_layers`)
    mix           a trained `ScalarMix` instead of `layers`
    batch_tokens  positions per batch, padding included; default by device
    device        where to run this time: "cpu", "cuda", "cuda:1", "auto"; default the encoder's own
    dtype         one of `modes` for this time, "auto" for the fastest, "default" for float32 or, on a CPU, int8 where
                  the model is stored so; vectors come out as float32 (or float64)
    progress      a progress bar on standard error
    normalise     vectors of length 1 (the pooled vector for `encode`); zero vectors stay zero

    An encoder may be called from any number of threads: a sentence gets the same vectors as from one.

    `width` is D, `layer_names` has a name per layer, `context` says which neighbours a word's vector depends on,
    `fingerprint` is equal for models that give equal vectors, wherever they were read from, and `arithmetic` says how
    exactly: a model of int8 gives somewhat other numbers on a machine without a C compiler.
    """

    modes: ClassVar[tuple[str, ...]] = FLOATS  # what `dtype` may be besides "auto" and "default"

    def __init__(self, tokenizer: Tokenizer, *, device: str | torch.device, dtype: str | torch.dtype) -> None:
        """For subclasses. The model is built by the first call of `placed`, with which their own `__init__` may end."""
        self.tokenizer = tokenizer
        self._device, self._asked = pick_device(device), dtype
        self._built = Built()

    @abstractmethod
    def _build(self, device: torch.device, dtype: torch.dtype) -> BatchRunner:
        """The model in this place."""

    @property
    @abstractmethod
    def width(self) -> int:
        """D, the size of one layer's vector."""

    @property
    @abstractmethod
    def layer_names(self) -> tuple[str, ...]:
        """One per layer, the lowest first."""

    @property
    @abstractmethod
    def context(self) -> Context:
        """Which words around it a word's vector depends on: those on both sides, to its left, or none."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A digest of everything that the vectors depend on."""

    @property
    @abstractmethod
    def source(self) -> str:
        """Where it was read from, for messages."""

    @property
    def depth(self) -> int:
        """L, the number of layers."""
        return len(self.layer_names)

    @property
    def info(self) -> str:
        """What this is, in one line."""
        layers = "1 layer" if self.depth == 1 else f"{self.depth} layers"
        return f"{self.source}: {layers} of {self.width}; a word's vector depends on {SEES[self.context]}"

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        return self._mode(self._asked, self._device)

    @property
    def arithmetic(self) -> str:
        """Which arithmetic makes its vectors here, as "int8 in C, activations of 7 bits" or "float32".

        Vectors of the same model are comparable number by number where this is equal.
        """
        return self.arithmetic_in(self.device, self.dtype)

    def arithmetic_in(self, device: torch.device, dtype: torch.dtype) -> str:
        """The same for another place."""
        name = str(dtype).removeprefix("torch.")
        return name if dtype.itemsize >= 4 else f"{name} on {device.type}"

    @property
    def longest_word(self) -> int | None:
        """Characters or bytes of a word that the model reads; None: all of them."""
        return None

    def overlong(self, word: str) -> bool:
        """Whether the model reads only the beginning of this word."""
        return False

    def unknown(self, word: str) -> bool:
        """Whether the model knows nothing of this word, so that its vector stands for no word in particular."""
        return False

    def forget_words(self) -> None:  # noqa: B027  (most have nothing to forget)
        """Empty the word cache, where there is one."""

    def encode(
        self,
        sentences: Given,
        *,
        layers: Layers | None = None,
        mix: ScalarMix | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        progress: bool = False,
        normalise: bool = False,
    ) -> Vectors:
        """One vector per sentence, the mean over its tokens: (N, D), or (D,) for one string.

        An empty sentence gives a zero vector. With layers="all" the layers stay apart: (N, L, D).
        """
        choice = Choice.of(layers, mix, default="average")
        runner = self.placed(device, dtype)
        request = read_request(sentences, tokenizer=self.tokenizer)
        shape = partial(pooled, normalise=normalise)
        found = [
            e.vectors for e in self._run(request, runner, choice, shape, batch_tokens, progress=progress, pool=True)
        ]
        if request.single:
            return found[0]
        return np.stack(found) if found else np.zeros((0, *self._axes(choice)), dtype=np.float32)

    @overload
    def encode_tokens(self, sentences: str | Sentence, **options: Unpack[Options]) -> Vectors: ...  # type: ignore[overload-overlap]
    @overload
    def encode_tokens(self, sentences: Given, **options: Unpack[Options]) -> list[Vectors]: ...
    def encode_tokens(
        self,
        sentences: Given,
        *,
        layers: Layers | None = None,
        mix: ScalarMix | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        progress: bool = False,
        normalise: bool = False,
    ) -> Vectors | list[Vectors]:
        """One vector per token: a list of (T, D), or (T, D) for one string; (0, D) for an empty sentence."""
        choice = Choice.of(layers, mix, default="average")
        runner = self.placed(device, dtype)
        request = read_request(sentences, tokenizer=self.tokenizer)
        shape = partial(per_sentence, normalise=normalise)
        found = [e.vectors for e in self._run(request, runner, choice, shape, batch_tokens, progress=progress)]
        return found[0] if request.single else found

    @overload
    def encode_layers(self, sentences: str | Sentence, **options: Unpack[Options]) -> Vectors: ...  # type: ignore[overload-overlap]
    @overload
    def encode_layers(self, sentences: Given, **options: Unpack[Options]) -> list[Vectors]: ...
    def encode_layers(
        self,
        sentences: Given,
        *,
        layers: Layers | None = None,
        mix: ScalarMix | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        progress: bool = False,
        normalise: bool = False,
    ) -> Vectors | list[Vectors]:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string; layer 0 knows no context.

        A choice that makes one layer out of all ("average", a mix) gives (1, T, D).
        """
        choice = Choice.of(layers, mix, default="all")
        runner = self.placed(device, dtype)
        request = read_request(sentences, tokenizer=self.tokenizer)
        shape = partial(per_sentence, normalise=normalise)
        found = [e.vectors for e in self._run(request, runner, choice, shape, batch_tokens, progress=progress)]
        kept = [v if v.ndim == 3 else v[None] for v in found]
        return kept[0] if request.single else kept

    def stream(
        self,
        sentences: Given,
        *,
        layers: Layers | None = None,
        mix: ScalarMix | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        progress: bool = False,
        normalise: bool = False,
    ) -> Iterator[Embedding]:
        """`encode_tokens` for input of any length: (sentence, vectors) pairs in input order, in bounded memory."""
        choice = Choice.of(layers, mix, default="average")
        runner = self.placed(device, dtype)
        request = read_request(sentences, tokenizer=self.tokenizer)
        shape = partial(per_sentence, normalise=normalise)
        return self._run(request, runner, choice, shape, batch_tokens, progress=progress)

    def run(self, sentences: list[Sentence]) -> LayerStack:
        """One batch exactly as given, on the device, boundaries still in it: what mixes, tasks and probes take."""
        return self.placed().stack(sentences)

    def placed(self, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None) -> BatchRunner:
        """The model where it is to run, by default in its own place. It stays built there and where it ran last."""
        place = self._device if device is None else pick_device(device)
        at = place, self._mode(self._asked if dtype is None else dtype, place)
        return self._built.find(at, self._build, home=(self.device, self.dtype))

    def _mode(self, dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
        return pick_dtype(dtype, device, modes=self.modes, usual=self._usual)

    def _usual(self, device: torch.device) -> torch.dtype:
        """What the model runs in there unless told otherwise."""
        return torch.float32

    def _run(
        self,
        request: Request,
        runner: BatchRunner,
        choice: Choice,
        shape: Shape,
        batch_tokens: int | None,
        *,
        progress: bool,
        pool: bool = False,
    ) -> Iterator[Embedding]:
        budget = batch_budget(batch_tokens, runner.device)
        per_token = 1 if pool else 4 * int(np.prod(self._axes(choice)))  # bytes that a token's result takes
        window = min(max(AHEAD_BYTES // (per_token * budget), 1), 64)
        batches = plan_batches(request.sentences, batch_tokens=budget, window=window)
        results = run_batches(batches, runner, choice, shape)
        if not progress:
            return results
        from rich.console import Console
        from rich.progress import track

        return iter(track(results, "embedding", total=request.total, console=Console(stderr=True)))

    def _axes(self, choice: Choice) -> tuple[int, ...]:
        """The shape of one position's result."""
        return choice.axes(self.depth, self.width)


def digest_of(described: object, tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of what something says of itself and of its numbers."""
    digest = hashlib.blake2b(repr(described).encode("utf-8", "surrogatepass"), digest_size=16)
    digest_tensors(digest, tensors)
    return digest.hexdigest()
