"""`Encoder`: sentences in, NumPy vectors out, the same calls whichever model runs: ELMo, BERT, GPT, static vectors."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import Window
from elmokit.encoders.batches import BatchRunner, Built
from elmokit.encoders.calls import Answer, Call, Options, Shape, check_options, run_call
from elmokit.encoders.calls import Context as Context
from elmokit.encoders.calls import Hit as Hit
from elmokit.encoders.calls import Layers as Layers
from elmokit.encoders.columns import Columns
from elmokit.encoders.places import FLOATS, batch_budget, pick_device, pick_dtype
from elmokit.encoders.results import Block, Choice, Embedding, Vectors, per_sentence, pooled, run_windows
from elmokit.errors import InputError
from elmokit.formats.given import Given, read_request
from elmokit.layers import LayerChoice, LayerStack
from elmokit.text import Sentence, Tokenizer
from elmokit.text.packed import Packed, cut_packed
from elmokit.weights.storage import digest_tensors

if TYPE_CHECKING:
    from elmokit.encoders.aligned import Aligned
    from elmokit.encoders.alignment import Alignment

BLOCK_BYTES = 32 << 20  # vectors of a `Block` where a device does not make blocks itself
SEES = {
    "both": "the words on both sides",
    "left": "the words to its left only",
    "right": "the words to its right only",
    "none": "no other word",
}


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
    as_tensor     torch tensors on the device instead of NumPy arrays; not for `stream`

    An encoder may be called from any number of threads: a sentence gets the same vectors as from one.

    `width` is D, `layer_names` has a name per layer, `context` says which neighbours a word's vector depends on,
    `fingerprint` is equal for models that give equal vectors, wherever they were read from, and `arithmetic` says how
    exactly: a model of int8 gives somewhat other numbers on a machine where it cannot run in C.
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
    def _wanted(self) -> str | torch.dtype:
        """The type that it was asked for; "default" stays, since it may be another in another place."""
        return "default" if self._asked == "default" else self.dtype

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

    @property
    def has_unknown(self) -> bool:
        """Whether there may be words that the model knows nothing of."""
        return type(self).unknown is not Encoder.unknown

    def unknown(self, word: str) -> bool:
        """Whether the model knows nothing of this word, so that its vector stands for no word in particular."""
        return False

    def forget_words(self) -> None:  # noqa: B027  (most have nothing to forget)
        """Empty the word cache, where there is one."""

    @overload
    def encode(self, sentences: Given, *, as_tensor: Literal[True], **options: Unpack[Options]) -> Tensor: ...
    @overload
    def encode(self, sentences: Given, *, as_tensor: Literal[False] = False, **options: Unpack[Options]) -> Vectors: ...
    def encode(self, sentences: Given, *, as_tensor: bool = False, **options: Unpack[Options]) -> Vectors | Tensor:
        """One vector per sentence, the mean over its tokens: (N, D), or (D,) for one string.

        An empty sentence gives a zero vector. With layers="all" the layers stay apart: (N, L, D).
        """
        answer = self._answer(sentences, pooled, default="average", options=options)
        found = [e.vectors for e in answer.results]
        if answer.single:
            vectors = found[0]
        else:
            axes = answer.choice.axes(self.depth, self.width)
            vectors = np.stack(found) if found else np.zeros((0, *axes), dtype=np.float32)
        return answer.tensor(vectors) if as_tensor else vectors

    @overload
    def encode_tokens(  # type: ignore[overload-overlap]
        self, sentences: str | Sentence, *, as_tensor: Literal[False] = False, **options: Unpack[Options]
    ) -> Vectors: ...
    @overload
    def encode_tokens(
        self, sentences: Given, *, as_tensor: Literal[False] = False, **options: Unpack[Options]
    ) -> list[Vectors]: ...
    @overload
    def encode_tokens(self, sentences: Given, *, as_tensor: Literal[True], **options: Unpack[Options]) -> Any: ...
    def encode_tokens(self, sentences: Given, *, as_tensor: bool = False, **options: Unpack[Options]) -> Any:
        """One vector per token: a list of (T, D), or (T, D) for one string; (0, D) for an empty sentence."""
        answer = self._answer(sentences, per_sentence, default="average", options=options)
        found = [answer.tensor(e.vectors) if as_tensor else e.vectors for e in answer.results]
        return found[0] if answer.single else found

    @overload
    def encode_layers(  # type: ignore[overload-overlap]
        self, sentences: str | Sentence, *, as_tensor: Literal[False] = False, **options: Unpack[Options]
    ) -> Vectors: ...
    @overload
    def encode_layers(
        self, sentences: Given, *, as_tensor: Literal[False] = False, **options: Unpack[Options]
    ) -> list[Vectors]: ...
    @overload
    def encode_layers(self, sentences: Given, *, as_tensor: Literal[True], **options: Unpack[Options]) -> Any: ...
    def encode_layers(self, sentences: Given, *, as_tensor: bool = False, **options: Unpack[Options]) -> Any:
        """Every layer of every token: a list of (L, T, D), or (L, T, D) for one string; layer 0 knows no context.

        A choice that makes one layer out of all ("average", a mix) gives (1, T, D).
        """
        answer = self._answer(sentences, per_sentence, default="all", options=options)
        apart = [e.vectors if e.vectors.ndim == 3 else e.vectors[None] for e in answer.results]
        found = [answer.tensor(vectors) for vectors in apart] if as_tensor else apart
        return found[0] if answer.single else found

    def stream(self, sentences: Given, **options: Unpack[Options]) -> Iterator[Embedding]:
        """`encode_tokens` for input of any length: (sentence, vectors) pairs in input order, in bounded memory."""
        return self._answer(sentences, per_sentence, default="average", options=options, lend=True).results

    def blocks(
        self,
        stretches: Iterable[Sequence[Sentence]],
        *,
        stored: torch.dtype = torch.float32,
        **options: Unpack[Options],
    ) -> Iterator[Block]:
        """The vectors of whole stretches of sentences, for the writers of files; no block goes over a stretch's end.

        Each stretch has batches of its own and begins with an empty word cache, so its vectors depend on nothing before
        it. `stored` is float32 or float16. On CUDA a stretch begins before the one before it has ended.
        """
        call = self._call("average", options)
        runner, normalise = call.runner, options.get("normalise", False)
        if runner.apart:
            yield from run_windows(
                self._windows(stretches, call, stored.itemsize), runner, call.choice, normalise=normalise, dtype=stored
            )
            return
        kind = np.float16 if stored == torch.float16 else np.float32
        for stretch in stretches:
            self.forget_words()
            held: list[Embedding] = []
            size = 0
            for sentence, vectors in self.stream(stretch, **options):
                held.append(Embedding(sentence, np.asarray(vectors, dtype=kind)))
                size += held[-1].vectors.nbytes
                if size >= BLOCK_BYTES:
                    yield Block.of(held)
                    held, size = [], 0
            if held:
                yield Block.of(held)

    def _windows(self, stretches: Iterable[Sequence[Sentence]], call: Call, itemsize: int) -> Iterator[Window]:
        for stretch in stretches:
            self.forget_words()
            for part in cut_packed([Packed.of(stretch)], tokens=call.budget * call.window(itemsize)):
                yield Window.of(part, batch_tokens=call.budget)

    def columns(
        self, text: str = "text", *, output: str = "vector", tokens: bool = False, **options: Unpack[Options]
    ) -> Columns:
        """A function that adds a column of vectors to a table: `dataset.map(elmo.columns("text"), batched=True)`.

        It takes batches of datasets' `map`, and DataFrames and Series of pandas and polars. With `tokens`, a row's
        value has a vector per token. A missing text gives a missing value.
        """
        return Columns(self, text, output=output, tokens=tokens, options=options)

    def similarity(self, a: Given, b: Given, **options: Unpack[Options]) -> Any:
        """Cosines of sentences' vectors: (N, M) for N and M of them, a number for two strings."""
        options["normalise"] = True
        if LayerChoice.parse(options.get("layers") or "average").kind == "all":
            raise InputError("layers 'all' keep the layers apart, expected a choice that makes one vector of them")
        left, right = self.encode(a, **options), self.encode(b, **options)  # (N, D) and (M, D), or (D,)
        cosines = (left @ (right if right.ndim == 1 else right.T)).clip(-1, 1)  # 1.0000001 is rounding
        return float(cosines) if cosines.ndim == 0 else cosines

    def search(self, queries: Given, texts: Given, k: int = 5, **options: Unpack[Options]) -> Any:
        """The k texts most like each query, best first: a list of `Hit`s per query, or one list for one string."""
        if k < 1:
            raise InputError(f"k is {k}; at least 1 text is to be found")
        among: Any = [texts] if isinstance(texts, str | Sentence) else texts
        cosines = self.similarity(queries, among, **options)
        rows = [
            [Hit(int(place), float(row[place])) for place in np.argsort(-row, kind="stable")[:k]]
            for row in np.atleast_2d(cosines)
        ]
        return rows[0] if isinstance(queries, str | Sentence) else rows

    def to(self, device: str | torch.device, *, dtype: str | torch.dtype | None = None) -> Self:
        """Moves the model: this is its own place from now on. Not while other threads use it."""
        place, wanted = pick_device(device), self._asked if dtype is None else dtype
        self._mode(wanted, place)  # a type that does not fit there is refused before anything changes
        before = self._device, self._asked, self._built
        self._device, self._asked, self._built = place, wanted, Built()
        try:
            self.placed()
        except BaseException:  # it does not fit into the memory there: all is as it was
            self._device, self._asked, self._built = before
            raise
        return self

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.source!r}, {self.depth} x {self.width}, device={str(self.device)!r}, "
            f"arithmetic={self.arithmetic!r})"
        )

    def aligned(self, alignment: "str | Path | Alignment") -> "Aligned":
        """This model with its vectors mapped into another model's space; an encoder like any other.

        `alignment` is an `Alignment`, its folder, or the name of one that lies beside the model (`elmokit align`).
        """
        from elmokit.encoders.aligned import Aligned
        from elmokit.encoders.alignment import Alignment, find_alignment

        if not isinstance(alignment, Alignment):
            alignment = Alignment.read(find_alignment(alignment, self.source))
        return Aligned(self, alignment)

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
        """What the model runs in there by default."""
        return torch.float32

    def _answer(
        self,
        sentences: Given,
        shape: Shape,
        *,
        default: str,
        options: Options,
        lend: bool = False,
    ) -> Answer:
        """Begins a call; nothing runs before its results are taken."""
        call = self._call(default, options)
        request = read_request(sentences, tokenizer=self.tokenizer)
        normalise = options.get("normalise", False)
        results = self._results(request.sentences, call, shape, normalise=normalise, lend=lend)
        if options.get("progress"):
            from rich.progress import track

            from elmokit._terminal import Console

            results = iter(track(results, "embedding", total=request.total, console=Console(stderr=True)))
        return Answer(results, request.single, call.choice, call.runner.device)

    def _results(
        self, sentences: Iterator[Sentence], call: Call, shape: Shape, *, normalise: bool, lend: bool
    ) -> Iterator[Embedding]:
        """In input order, made as they are taken. For encoders that need no batches there may be a shorter way."""
        return run_call(sentences, call, shape, normalise=normalise, lend=lend)

    def _call(self, default: str, options: Options) -> Call:
        """What the options of a call come to."""
        check_options(options)
        choice = Choice.of(options.get("layers"), options.get("mix"), default=default)
        runner = self.placed(options.get("device"), options.get("dtype"))
        budget = batch_budget(options.get("batch_tokens"), runner.device)
        return Call(choice, runner, budget, int(np.prod(choice.axes(self.depth, self.width))))


def digest_of(described: object, tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of what something says of itself and of its numbers."""
    digest = hashlib.blake2b(repr(described).encode("utf-8", "surrogatepass"), digest_size=16)
    digest_tensors(digest, tensors)
    return digest.hexdigest()
