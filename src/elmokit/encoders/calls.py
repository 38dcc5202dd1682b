"""A call of an encoder: its options, what they come to, and its answer."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from elmokit.batch import Window, cut_stream, plan_batches
from elmokit.encoders.batches import BatchRunner
from elmokit.encoders.places import ahead_bytes
from elmokit.encoders.results import Choice, Embedding, Vectors, per_sentence, pooled, run_batches, run_windows
from elmokit.layers import LayerChoice
from elmokit.nn.mix import ScalarMix
from elmokit.text import Sentence
from elmokit.text.packed import Packed

Shape = Callable[..., list[Vectors]]  # `per_sentence` or `pooled`
Layers = str | int | LayerChoice
Context = Literal["both", "left", "right", "none"]


class Options(TypedDict, total=False):
    """The options that `encode`, `encode_tokens`, `encode_layers` and `stream` share; see `Encoder`."""

    layers: Layers | None
    mix: ScalarMix | None
    batch_tokens: int | None
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    progress: bool
    normalise: bool


class Hit(NamedTuple):
    """A text that `search` found."""

    place: int  # among the texts, from 0
    score: float  # the cosine


class Call(NamedTuple):
    """What a call asked for."""

    choice: Choice
    runner: BatchRunner
    budget: int  # positions of a batch
    numbers: int  # of a token's result

    def window(self, itemsize: int) -> int:
        """How many batches' results may be held back while sentences of like length are brought together."""
        return min(max(ahead_bytes(self.runner.device) // (itemsize * self.numbers * self.budget), 1), 64)


class Answer(NamedTuple):
    """A call under way."""

    results: Iterator[Embedding]
    single: bool  # one string was given, which gets its own answer
    choice: Choice
    device: torch.device

    def tensor(self, vectors: Vectors) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(vectors)).to(self.device)


def check_options(options: Options) -> None:
    """Refuses names that are none of `Options`."""
    if unknown := sorted(options.keys() - Options.__annotations__.keys()):
        hint = "; batches are cut by their tokens: use batch_tokens=" if "batch_size" in unknown else ""
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"no option {unknown[0]!r}{hint}. The options are {known}")


def run_call(
    sentences: Iterator[Sentence], call: Call, shape: Shape, *, normalise: bool, lend: bool
) -> Iterator[Embedding]:
    """The embeddings of all sentences, in their order, by batches of similar length."""
    if shape is per_sentence and call.runner.apart:
        stretches = cut_stream(sentences, tokens=call.budget * call.window(4))
        windows = (Window.of(Packed.of(stretch), batch_tokens=call.budget) for stretch in stretches)
        return chain.from_iterable(run_windows(windows, call.runner, call.choice, normalise=normalise, lend=lend))
    window = 64 if shape is pooled else call.window(4)
    batches = plan_batches(sentences, batch_tokens=call.budget, window=window)
    return run_batches(batches, call.runner, call.choice, partial(shape, normalise=normalise))
