"""A tiny model as the official files, and as arrays for the reference."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py

import models
import reference


class Files(NamedTuple):
    """One model: its folder, its two files, and the arrays in them."""

    folder: Path
    options: str
    weights: str
    tiny: models.Tiny

    def run(self, batches: list[list[list[str]]]) -> list[list[Any]]:
        """The reference over batches one after another, state carried by row: layers (L, T, D) without boundaries."""
        state: dict[int, Any] = {}
        found = []
        for batch in batches:
            rows = []
            for k, tokens in enumerate(batch):
                layers, state[k] = reference.embed(self.tiny.weights, self.tiny.options, tokens, state.get(k))
                rows.append(reference.drop_boundaries(layers))
            found.append(rows)
        return found


def write_official(folder: Path, tiny: models.Tiny) -> Files:
    folder.mkdir(exist_ok=True)
    options, weights = folder / "options.json", folder / "weights.hdf5"
    options.write_text(json.dumps(tiny.options))
    with h5py.File(weights, "w") as file:
        for name, array in tiny.weights.items():
            file[name] = array
    return Files(folder, str(options), str(weights), tiny)
