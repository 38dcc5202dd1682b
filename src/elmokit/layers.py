"""What every encoder returns (`LayerStack`), and how layers are chosen from it (`LayerChoice`).

all               every layer, kept apart
top, 0, 1, -2     one layer (0 is the context-free token layer, -1 the top)
average           the plain mean of all layers; `average:1,2` of some
concat:1,2        layers side by side; ranges too: `concat:-4..-1`, `average:1..-1`
weights:.2,.3,.5*1.1   a fixed mix: weights as given, and gamma after the star
mix, mix:-4..-1   a mix to be trained: softmax weights from 0, gamma from 1 (untrained, it is the average)

The rows of the BERT paper's table of features (Devlin et al. 2019, section 5.3) have names: embeddings, second-to-last,
last, weighted-last-four, concat-last-four, weighted-all (without the embeddings, as there).

The grammar works on arrays and tensors. torch is loaded only for tensors, so an exported model runs without it.
"""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError

__all__ = ["LayerChoice", "LayerStack"]

if TYPE_CHECKING:
    from torch import Tensor

Vectors = NDArray[np.float32]
Values = TypeVar("Values", "Tensor", NDArray[np.float32])

Kind = Literal["all", "average", "concat", "weights", "mix"]
WHOLE: dict[str, Kind] = {"all": "all", "average": "average", "mix": "mix"}  # may stand alone
LISTED: dict[str, Kind] = {"average": "average", "concat": "concat", "mix": "mix"}  # may name layers
STRATEGIES = {
    "embeddings": "0",
    "second-to-last": "-2",
    "last": "-1",
    "weighted-last-four": "mix:-4..-1",
    "concat-last-four": "concat:-4..-1",
    "weighted-all": "mix:1..-1",
}
GRAMMAR = (
    "all, top, a layer number, average[:LAYERS], concat:LAYERS, weights:W,W,...[*GAMMA], mix[:LAYERS] or a name: "
    + ", ".join(STRATEGIES)
)
Span = tuple[int, int]  # layers from the first to the second, both included; negative ones count from the top


@dataclass(frozen=True, slots=True)
class LayerStack:
    """All layers of a batch. While `bounded`, the first and last real position of each row are sentence boundaries."""

    values: "Tensor"  # (L, B, T, D), zero where masked
    mask: "Tensor"  # (B, T) bool, True at real positions
    names: tuple[str, ...]  # one per layer
    bounded: bool = False

    def inner(self) -> "LayerStack":
        """The stack without its boundary positions. (L, B, T - 2, D)"""
        if not self.bounded:
            return self
        mask = self.mask[:, 2:]  # the end boundary is the last real position, so the words are two fewer
        values = self.values[:, :, 1:-1] * mask[..., None]
        return replace(self, values=values, mask=mask, bounded=False)


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """A parsed choice of layers; see the module's grammar."""

    kind: Kind
    layers: tuple[Span, ...] | None = None  # None: every layer
    weights: tuple[float, ...] = ()
    gamma: float = 1.0

    @classmethod
    def parse(cls, spec: "str | int | LayerChoice") -> "LayerChoice":
        if isinstance(spec, LayerChoice):
            return spec
        text = str(spec).strip().replace(" ", "")
        text = STRATEGIES.get(text, text)
        kind, colon, rest = text.partition(":")
        if not colon:
            if kind in WHOLE:
                return cls(WHOLE[kind])
            if kind == "top":
                return cls("average", ((-1, -1),))
            if re.fullmatch(r"-?\d{1,9}", kind):
                return cls("average", ((int(kind), int(kind)),))
        elif kind == "weights":
            weights, _, gamma = rest.partition("*")
            try:
                numbers = tuple(float(w) for w in weights.split(","))
                if np.isfinite([*numbers, last := float(gamma or 1)]).all():
                    return cls("weights", None, numbers, last)
            except ValueError:
                pass
        elif kind in LISTED:
            matches = [re.fullmatch(r"(-?\d{1,9})(?:\.\.(-?\d{1,9}))?", part) for part in rest.split(",")]
            spans = tuple((int(m[1]), int(m[2] or m[1])) for m in matches if m)
            if len(spans) == len(matches):
                return cls(LISTED[kind], spans)
        raise InputError(f"layers {spec!r} not understood; expected {GRAMMAR}")

    def indices(self, depth: int) -> list[int]:
        """The chosen layers of a stack of `depth` layers, counted from 0; an error if it has no such layers."""
        if self.kind == "weights" and len(self.weights) != depth:
            raise InputError(f"{len(self.weights)} layer weights given, but the model has {depth} layers")
        if self.layers is None:
            return list(range(depth))
        chosen: list[int] = []
        for span in self.layers:
            for k in span:
                if not -depth <= k < depth:
                    raise InputError(f"layer {k}, but the model has layers 0 to {depth - 1}")
            first, last = (k % depth for k in span)
            if first > last:
                raise InputError(f"layers {span[0]}..{span[1]} of a model with layers 0 to {depth - 1} are none")
            chosen += range(first, last + 1)
        return chosen

    def apply(self, values: Values) -> Values:
        """(L, ..., D) to (..., D), (..., n * D) for concat, (n, ..., D) for all."""
        picked = self.indices(len(values))
        every = picked == list(range(len(values)))  # then there is nothing to copy out
        if self.kind == "all":
            return values if every else values[picked]
        if self.kind == "concat":
            return _side_by_side([values[k] for k in picked])
        if self.kind == "weights":
            mixed: Values = values[0] * (self.weights[0] * self.gamma)
            for k, weight in enumerate(self.weights[1:], start=1):
                mixed = mixed + values[k] * (weight * self.gamma)
            return mixed
        mean: Values = values[picked[0]] if len(picked) == 1 else (values if every else values[picked]).mean(0)
        return mean

    def width(self, depth: int, width: int) -> int:
        """The size of the last axis that `apply` gives."""
        chosen = self.indices(depth)
        return width * len(chosen) if self.kind == "concat" else width


def mean_rows(values: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[Any]:
    """(..., B, T, D), zero at padding, to means (..., B, D) over each sentence's positions (B,); zero without any."""
    means: NDArray[Any] = values.sum(axis=-2) / np.maximum(counts, 1).astype(values.dtype)[:, None]
    return means


def unit_rows(values: NDArray[Any], *, least: float = 1e-12) -> NDArray[Any]:
    """Vectors (..., D) of length 1; those that are no longer than `least` become zero."""
    length = np.sqrt(np.square(values).sum(axis=-1, keepdims=True))
    scaled: NDArray[Any] = np.divide(values, length, out=np.zeros_like(values), where=length > least)
    return scaled


def cosine(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Between -1 and 1; 0 where one of the vectors (D,) is zero."""
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return min(1.0, max(-1.0, float(a @ b) / size)) if size else 0.0


def _side_by_side(parts: list[Values]) -> Values:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=-1)
    import torch

    return torch.cat(parts, dim=-1)
