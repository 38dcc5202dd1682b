"""From the layers of a batch to what a call returns: the chosen layers, an array per sentence, in the input's order."""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.batch import Window, in_order
from elmokit.encoders._transfers import Piece, download, send, upload
from elmokit.encoders.batches import BatchRunner, Placed
from elmokit.errors import InputError
from elmokit.kernels.cpu.copies import as_array, put_rows, take_rows
from elmokit.layers import LayerChoice, LayerStack, mean_rows, unit_rows
from elmokit.nn.mix import ScalarMix
from elmokit.text import Sentence
from elmokit.text.packed import Ints, Packed

Vectors = NDArray[np.floating[Any]]
Shape = Callable[[Tensor, Tensor], list[Vectors]]  # values and mask of a batch to one array per sentence


class Embedding(NamedTuple):
    """One sentence and its vectors, as `stream` yields them."""

    sentence: Sentence
    vectors: Vectors  # (T, D), or (L, T, D) for layers="all"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a call makes of the layers of a batch: a choice of layers, or a trained mix."""

    layers: LayerChoice
    mix: ScalarMix | None = None

    @classmethod
    def of(cls, layers: str | int | LayerChoice | None, mix: ScalarMix | None, *, default: str) -> "Choice":
        if layers is not None and mix is not None:
            raise InputError(
                f"both layers={layers!r} and a mix were given; a mix already weighs the layers, give one of them"
            )
        return cls(LayerChoice.parse(default if layers is None else layers), mix)

    def axes(self, depth: int, width: int) -> tuple[int, ...]:
        """The shape of one position's result: (D,), or (L, D) where the layers stay apart."""
        if self.mix is not None:
            return (width,)
        last = self.layers.width(depth, width)
        return (depth, last) if self.layers.kind == "all" else (last,)

    def on(self, device: torch.device, dtype: torch.dtype) -> Callable[[LayerStack], tuple[Tensor, Tensor]]:
        """From a stack to its values without boundaries, (B, T, D) or (L, B, T, D), and their mask (B, T)."""
        if self.mix is None:
            return self._pick
        mix = copy.deepcopy(self.mix).to(device, dtype).eval()  # the user's own may be in training, or elsewhere
        return lambda stack: (mix(stack), stack.inner().mask)

    def _pick(self, stack: LayerStack) -> tuple[Tensor, Tensor]:
        if not stack.bounded:
            return self.layers.apply(stack.values), stack.mask
        mask = stack.mask[:, 2:]  # as in `inner`, but only what was chosen is masked
        values = stack.values[:, :, 1:-1]
        if (array := as_array(values)) is not None:
            return torch.from_numpy(self.layers.apply(array) * mask.numpy()[..., None]), mask
        return self.layers.apply(values) * mask[..., None], mask


def run_batches(
    batches: Iterable[list[Placed]], runner: BatchRunner, choice: Choice, shape: Shape
) -> Iterator[Embedding]:
    """The embeddings of all sentences, in the order of the input."""
    apply = choice.on(runner.device, runner.dtype)

    @torch.inference_mode()
    def run(batch: list[Placed]) -> list[Vectors]:
        return shape(*apply(runner.stack([sentence for _, sentence in batch])))

    def results() -> Iterator[tuple[int, Embedding]]:
        for batch in batches:
            for part, made in runner.fitted(batch, run):
                for (position, sentence), vectors in zip(part, made, strict=True):
                    yield position, Embedding(sentence, vectors)

    return in_order(results())


@dataclass(frozen=True, slots=True)
class Block:
    """Some sentences, one after another, and their vectors in one array; what the writers of files take."""

    sentences: Sequence[Sentence]
    vectors: Vectors  # (N * L, D): sentence by sentence, layer by layer, token by token
    layers: tuple[int, ...]  # (L,) where the layers stay apart, else ()

    def __iter__(self) -> Iterator[Embedding]:
        L, at, vectors = math.prod(self.layers), 0, self.vectors
        sizes = Packed.of(self.sentences).lengths.tolist()
        for sentence, size in zip(self.sentences, sizes, strict=True):
            part = vectors[at : at + L * size]
            at += L * size
            yield Embedding(sentence, part.reshape(*self.layers, size, part.shape[1]) if self.layers else part)

    @classmethod
    def of(cls, embeddings: Sequence[Embedding]) -> "Block":
        """Embeddings brought together."""
        shape = embeddings[0].vectors.shape
        flat = [found.vectors.reshape(-1, shape[-1]) for found in embeddings]
        return cls([found.sentence for found in embeddings], np.concatenate(flat), shape[:-2])


def run_windows(
    windows: Iterable[Window],
    runner: BatchRunner,
    choice: Choice,
    *,
    normalise: bool = False,
    dtype: torch.dtype | None = None,
    lend: bool = True,
    ahead: int = 1,
) -> Iterator[Block]:
    """The vectors of all sentences in the order of the input, brought into that order on the device.

    For devices that work by themselves: `ahead` further windows are begun before the results of one are taken, so that
    the device is never idle while its caller is at something else. `dtype` is what arrives, by default float32 (float64
    stays). With `lend` arrays may be page-locked memory, of which little may be kept.
    """
    apply = choice.on(runner.device, runner.dtype)
    under_way: deque[_UnderWay] = deque()
    for window in windows:
        under_way.append(_begin_window(window, runner, apply, normalise=normalise, dtype=dtype))
        if len(under_way) > ahead:
            yield from _end_window(under_way.popleft(), lend=lend)
    while under_way:
        yield from _end_window(under_way.popleft(), lend=lend)


class _UnderWay(NamedTuple):
    """A window whose vectors are on their way."""

    sentences: Packed
    layers: tuple[int, ...]
    pieces: list[Piece]


@torch.inference_mode()
def _begin_window(
    window: Window,
    runner: BatchRunner,
    apply: Callable[[LayerStack], tuple[Tensor, Tensor]],
    *,
    normalise: bool,
    dtype: torch.dtype | None,
) -> _UnderWay:
    """Calls for everything and waits for nothing."""
    sentences, counts, starts = window.sentences, window.sentences.lengths, window.sentences.offsets
    stack = runner.window(sentences)
    rows: Tensor | None = None
    layers: tuple[int, ...] = ()

    def positions(part: Ints) -> int:
        return len(part) * (int(counts[part].max()) + 2)

    def run(part: Ints) -> None:
        nonlocal rows, layers
        given = stack(part) if stack is not None else runner.stack([sentences[k] for k in part.tolist()])
        values, _ = apply(given)  # (..., 1, n, D), or (..., B, T, D) with padding
        *axes, B, T, D = values.shape
        layers, L = tuple(axes), math.prod(axes)
        found = values.reshape(L, B * T, D)
        lengths = counts[part]
        n = int(lengths.sum())
        table = np.stack([lengths, starts[part], np.cumsum(lengths) - lengths])  # (3, B)
        size, begin, first = upload(table, values.device)
        row = torch.repeat_interleave(torch.arange(len(part), device=size.device), size, output_size=n)  # (n,)
        position = torch.arange(n, device=size.device) - first[row]
        if stack is None:
            found = found[:, row * T + position]  # (L, n, D)
        layer = torch.arange(L, device=size.device)[:, None]  # (L, 1)
        goal = (L * begin[row] + position + layer * size[row]).flatten()  # (L * n,)
        found = widened(found.reshape(L * n, D))
        if normalise:
            found = _normalised(found)
        if rows is None:
            rows = found.new_empty(L * int(starts[-1]), D, dtype=dtype or found.dtype)
        put_rows(rows, goal, found.to(rows.dtype))

    for batch in window.batches:
        for _ in runner.fitted_by(positions, batch, run):
            pass
    assert rows is not None
    return _UnderWay(sentences, layers, list(send(rows, (math.prod(layers) * counts).tolist())))


def _end_window(window: _UnderWay, *, lend: bool) -> Iterator[Block]:
    """The vectors as they arrive."""
    at = 0
    for piece in window.pieces:
        end = at + len(piece.sizes)
        yield Block(window.sentences[at:end], piece.landed(lend=lend), window.layers)
        at = end


def per_sentence(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B arrays (..., T, D) of real positions; the padding never leaves the device.

    The device brings each sentence's vectors together, all layers of it, so what arrives is cut and not copied again.
    """
    *layers, B, T, D = values.shape
    L = math.prod(layers)
    real = mask.cpu().numpy()  # (B, T)
    places = np.arange(L * B * T).reshape(L, B, T).transpose(1, 0, 2)  # (B, L, T) into the flattened (L * B * T)
    wanted = places[np.broadcast_to(real[:, None], places.shape)]  # (L * N,): sentence by sentence, layer by layer
    rows = widened(take_rows(values.reshape(-1, D), upload(wanted, values.device)))  # (L * N, D)
    if normalise:
        rows = _normalised(rows)
    counts: list[int] = real.sum(axis=1).tolist()
    parts = download(rows, [L * count for count in counts])
    return [part.reshape(*layers, count, D) for part, count in zip(parts, counts, strict=True)]


def pooled(values: Tensor, mask: Tensor, *, normalise: bool = False) -> list[Vectors]:
    """(..., B, T, D) to B means over real positions (..., D); zero for a sentence without any.

    On a CPU NumPy adds position after position, so that padding, which is zero, does not change a sum: torch groups
    positions by how many there are, and a sentence's mean would depend on the longest one in its batch.
    """
    wide, counts = widened(values), mask.sum(dim=1)  # (B,)
    if (array := as_array(wide)) is not None:
        means = torch.from_numpy(mean_rows(array, counts.numpy()))
    else:
        means = wide.sum(dim=-2) / counts.clamp(min=1)[:, None]  # (..., B, D); padding is zero
    if normalise:
        means = _normalised(means)
    return list(np.moveaxis(means.cpu().numpy(), -2, 0))


def _normalised(rows: Tensor) -> Tensor:
    if (array := as_array(rows)) is not None:
        return torch.from_numpy(unit_rows(array))
    return torch.nn.functional.normalize(rows, dim=-1)


def widened(values: Tensor) -> Tensor:
    """float64 stays; anything narrower becomes float32, since NumPy has no bfloat16 and sums need the room."""
    return values if values.dtype == torch.float64 else values.float()
