"""Views of an encoder: each layer by itself, and mixes of its layers, in the grammar of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.layers import LayerChoice

Array = NDArray[np.floating[Any]]
EACH = "each"
ROWS = 16_384  # tokens mixed at once


@dataclass(frozen=True, slots=True)
class View:
    """A name and a choice of layers. A mix that nothing trains is the average."""

    name: str
    choice: LayerChoice

    def of_sentence(self, layers: NDArray[np.float32]) -> NDArray[np.float32]:
        """All layers (L, T, D) of a sentence to its view. (T, D')"""
        picked = self.choice.indices(len(layers))
        if len(picked) == 1 and self.choice.kind != "weights":
            return np.asarray(layers[picked[0]])
        return np.asarray(self.choice.apply(torch.from_numpy(layers)).numpy())

    def of_table(self, values: NDArray[np.float16]) -> NDArray[np.float16]:
        """All layers (N, L, D) of many tokens to their view. (N, D')"""
        depth = values.shape[1]
        picked = self.choice.indices(depth)
        if len(picked) == 1 and self.choice.kind != "weights":
            return np.ascontiguousarray(values[:, picked[0]])
        made = np.empty((len(values), self.choice.width(depth, values.shape[2])), dtype=np.float16)
        for start in range(0, len(values), ROWS):
            part = torch.from_numpy(np.ascontiguousarray(values[start : start + ROWS])).float().transpose(0, 1)
            made[start : start + ROWS] = self.choice.apply(part).numpy()
        return made


def list_views(layer_names: Sequence[str], specs: Sequence[str] = (EACH,)) -> tuple[View, ...]:
    """The views that these choices name; "each" is every layer by itself."""
    views: list[View] = []
    for spec in specs:
        if spec == EACH:
            views += [View(f"{k} {name}", LayerChoice.parse(k)) for k, name in enumerate(layer_names)]
            continue
        choice = LayerChoice.parse(spec)
        if choice.kind == "all":
            raise InputError(f"layers 'all' cannot be one view; {EACH!r} looks at every layer by itself")
        choice.indices(len(layer_names))  # layers that are not there are told now
        views.append(View(str(spec), choice))
    return tuple(views)
