"""`LayerStack`, what every encoder returns, and the one small grammar for choosing layers from it.

all               every layer, kept apart
top, 0, 1, -2     one layer (0 is the context-free token layer, -1 the top)
average           the plain mean of all layers; `average:1,2` of some
concat:1,2        layers side by side; ranges too: `concat:-4..-1`
weights:.2,.3,.5*1.1   a fixed mix: weights as they stand, and gamma after the star
mix, mix:-4..-1   a mix to be trained: softmax weights from 0, gamma from 1 (untrained, it is the average)
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from elmokit.errors import InputError

Kind = Literal["all", "average", "concat", "weights", "mix"]
WHOLE: dict[str, Kind] = {"all": "all", "average": "average", "mix": "mix"}  # may stand alone
LISTED: dict[str, Kind] = {"average": "average", "concat": "concat", "mix": "mix"}  # may name layers
GRAMMAR = "all, top, a layer number, average[:LAYERS], concat:LAYERS, weights:W,W,...[*GAMMA] or mix[:LAYERS]"


@dataclass(frozen=True, slots=True)
class LayerStack:
    """All layers of a batch. While `bounded`, the first and last real position of each row are sentence boundaries."""

    values: Tensor  # (L, B, T, D), zero where masked
    mask: Tensor  # (B, T) bool, True at real positions
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
    layers: tuple[int, ...] | None = None  # None: every layer
    weights: tuple[float, ...] = ()
    gamma: float = 1.0

    @classmethod
    def parse(cls, spec: "str | int | LayerChoice") -> "LayerChoice":
        if isinstance(spec, LayerChoice):
            return spec
        text = str(spec).strip().replace(" ", "")
        kind, colon, rest = text.partition(":")
        if not colon:
            if kind in WHOLE:
                return cls(WHOLE[kind])
            if kind == "top":
                return cls("average", (-1,))
            if re.fullmatch(r"-?\d+", kind):
                return cls("average", (int(kind),))
        elif kind == "weights":
            weights, _, gamma = rest.partition("*")
            try:
                return cls("weights", None, tuple(float(w) for w in weights.split(",")), float(gamma or 1))
            except ValueError:
                pass
        elif kind in LISTED:
            numbers = [_range(part) for part in rest.split(",")]
            if all(numbers):
                return cls(LISTED[kind], tuple(n for part in numbers for n in part))
        raise InputError(f"layers {spec!r} not understood; expected {GRAMMAR}")

    def indices(self, depth: int) -> list[int]:
        """The chosen layers of a stack of `depth` layers, counted from 0."""
        chosen = range(depth) if self.layers is None else self.layers
        for k in chosen:
            if not -depth <= k < depth:
                raise InputError(f"layer {k} asked for, but the model has layers 0 to {depth - 1}")
        return [k % depth for k in chosen]

    def apply(self, values: Tensor) -> Tensor:
        """(L, ..., D) to (..., D), (..., n * D) for concat, (n, ..., D) for all."""
        picked = self.indices(len(values))
        if self.kind == "all":
            return values[picked]
        if self.kind == "concat":
            return torch.cat([values[k] for k in picked], dim=-1)
        if self.kind == "weights":
            if len(self.weights) != len(values):
                raise InputError(f"{len(self.weights)} layer weights given, but the model has {len(values)} layers")
            scale = torch.tensor(self.weights, dtype=values.dtype, device=values.device) * self.gamma  # (L,)
            return torch.einsum("l,l...->...", scale, values)
        return values[picked[0]] if len(picked) == 1 else values[picked].mean(dim=0)

    def width(self, depth: int, width: int) -> int:
        """The size of the last axis that `apply` gives."""
        return width * len(self.indices(depth)) if self.kind == "concat" else width


def _range(part: str) -> list[int]:
    """`3` or `-4..-1` as numbers; empty where it is neither."""
    match = re.fullmatch(r"(-?\d+)(?:\.\.(-?\d+))?", part)
    if not match:
        return []
    first = int(match[1])
    return list(range(first, int(match[2] or first) + 1))
