"""`Elmo`: sentences in, NumPy vectors out. Two lines to the first result, and the same vectors whatever the batch."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import plan_batches
from elmokit.encoders.carry import CarriedElmo
from elmokit.encoders.choice import Choice
from elmokit.encoders.given import Given, Request, read_request
from elmokit.encoders.ordered import Embedding, in_order
from elmokit.encoders.places import batch_budget, pick_device, pick_dtype
from elmokit.encoders.runner import Runner
from elmokit.encoders.shape import Vectors, per_sentence, pooled
from elmokit.encoders.tokenizing import choose_tokenizer
from elmokit.encoders.words import CacheInfo
from elmokit.errors import InputError
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.bilm import BiLM
from elmokit.nn.mix import ScalarMix
from elmokit.text import Sentence, Tokenizer
from elmokit.weights import Pretrained, load_pretrained, save_pretrained

Layers = str | int | LayerChoice
CACHE_WORDS = 65_536
AHEAD_BYTES = 256 << 20  # results held back at most while sentences of like length are brought together


class Options(TypedDict, total=False):
    """The options that `encode`, `encode_tokens`, `encode_layers` and `stream` share; see `Elmo`."""

    layers: Layers | None
    mix: ScalarMix | None
    batch_tokens: int | None
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    progress: bool
    normalise: bool


class Elmo:
    """A pre-trained biLM that turns sentences into vectors.

    Every sentence starts from zero state, so it gets the same vectors (to float32 rounding) whatever its batch. Mixes
    with layer norm use the whole batch by definition, and `carry()` exists for state in the older tools' way.

    What may be given is told in `elmokit.encoders.given`: a string is one sentence and gets its own answer; a list of
    strings is a list of sentences; a tokenised sentence is a list of tokens inside a list; generators, dataset columns
    and `Path`s are read as streams. The options are the same everywhere:

    layers        which layers, in the grammar of `elmokit.layers`; default "average" ("all" for `encode_layers`)
    mix           a trained `ScalarMix` instead of `layers`
    batch_tokens  positions per batch, padding included; default by device
    device        where to run this time: "cpu", "cuda", "cuda:1", "auto"; default the encoder's own
    dtype         "float32", "bfloat16", "float16" or "float64" for this time; vectors come out as float32 (or float64)
    progress      a progress bar on standard error
    normalise     vectors of length 1 (the pooled vector for `encode`); zero vectors stay zero
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> None:
        if cache_words < 1:
            raise InputError(f"cache_words is {cache_words}; the word cache needs room for at least one word")
        self.pretrained = pretrained
        self.tokenizer = choose_tokenizer(pretrained, tokenizer, allow_other=allow_other_tokenizer)
        self.codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
        self.cache_words = cache_words
        self._home = self._at = pick_device(device), pick_dtype(dtype)
        self._runner = self._build()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | None = None,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer | None = None,
        allow_other_tokenizer: bool = False,
        cache_words: int = CACHE_WORDS,
    ) -> "Elmo":
        """From a bundled name, a model folder or archive (official, ManyLangs, our own), or a Hugging Face hub id.

        A model saved by elmokit names its tokenizer and refuses another unless `allow_other_tokenizer`. Models of older
        tools name none: official ones run with "english", ManyLangs ones with "unicode", or the one given.
        """
        pretrained = load_pretrained(source, revision=revision, local_files_only=local_files_only)
        return cls(
            pretrained,
            device=device,
            dtype=dtype,
            tokenizer=tokenizer,
            allow_other_tokenizer=allow_other_tokenizer,
            cache_words=cache_words,
        )

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model in elmokit's own format, to be read by `from_pretrained`."""
        return save_pretrained(self.pretrained, folder)

    def push_to_hub(self, repo_id: str, *, revision: str | None = None, private: bool = False) -> str:
        """Upload the model to the Hugging Face hub, making the repository where there is none; returns its address."""
        from elmokit.weights.hub import push_to_hub

        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_to_hub(folder, repo_id, revision=revision, private=private)

    @property
    def width(self) -> int:
        """D, the size of one layer's vector."""
        return self.pretrained.config.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self.pretrained.config.layer_names

    @property
    def bilm(self) -> BiLM:
        """The network where it last ran."""
        return self._runner.bilm

    @property
    def device(self) -> torch.device:
        return self._home[0]

    @property
    def dtype(self) -> torch.dtype:
        return self._home[1]

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration and all weights: equal for equal models, wherever they were read from."""
        digest = hashlib.blake2b(repr((self.pretrained.config, self.pretrained.codec)).encode(), digest_size=16)
        for name, tensor in sorted(self.pretrained.tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    @property
    def cache_info(self) -> CacheInfo:
        """Hits, misses, size and capacity of the word cache."""
        return self._runner.cache.info

    def forget_words(self) -> None:
        """Empty the word cache."""
        self._runner.cache.clear()

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
        runner = self._place(device, dtype)
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
        runner = self._place(device, dtype)
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
        runner = self._place(device, dtype)
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
        runner = self._place(device, dtype)
        request = read_request(sentences, tokenizer=self.tokenizer)
        shape = partial(per_sentence, normalise=normalise)
        return self._run(request, runner, choice, shape, batch_tokens, progress=progress)

    def run(self, sentences: list[Sentence]) -> LayerStack:
        """One batch exactly as given, on the device, boundaries still in it: what mixes, tasks and probes take."""
        return self._place(None, None).layers(sentences)[0]

    def carry(self) -> CarriedElmo:
        """A session that carries LSTM state from batch to batch by row, as AllenNLP and bilm-tf did."""
        return CarriedElmo(self._place(None, None), self.tokenizer)

    def _run(
        self,
        request: Request,
        runner: Runner,
        choice: Choice,
        shape: Callable[[Tensor, Tensor], list[Vectors]],
        batch_tokens: int | None,
        *,
        progress: bool,
        pool: bool = False,
    ) -> Iterator[Embedding]:
        budget = batch_budget(batch_tokens, runner.device)
        per_token = 1 if pool else 4 * int(np.prod(self._axes(choice)))  # bytes that a token's result takes
        window = min(max(AHEAD_BYTES // (per_token * budget), 1), 64)
        batches = plan_batches(request.sentences, batch_tokens=budget, window=window)
        results = in_order(batches, runner, choice, shape)
        if not progress:
            return results
        from rich.console import Console
        from rich.progress import track

        return iter(track(results, "embedding", total=request.total, console=Console(stderr=True)))

    def _axes(self, choice: Choice) -> tuple[int, ...]:
        """The shape of one position's result."""
        return choice.axes(self.pretrained.config.depth, self.width)

    def _place(self, device: str | torch.device | None, dtype: str | torch.dtype | None) -> Runner:
        """The runner for this call; built anew where the place or number type changed."""
        home_device, home_dtype = self._home
        at = (
            home_device if device is None else pick_device(device),
            home_dtype if dtype is None else pick_dtype(dtype),
        )
        if at != self._at:
            self._at = at
            self._runner = self._build()
        return self._runner

    def _build(self) -> Runner:
        device, dtype = self._at
        return Runner(self.pretrained.build(device=device, dtype=dtype), self.codec, cache_words=self.cache_words)
