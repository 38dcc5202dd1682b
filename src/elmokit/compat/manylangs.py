"""ELMoForManyLangs' `Embedder`: its models, and any other that elmokit reads, with its codes for layers.

It carried state over batches that it shuffled, so only its first batch could ever be reproduced. Here every sentence
starts from zero: the vectors of its first batch, each time.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.formats.given import token_sentence

__all__ = ["Embedder"]

ALL, AVERAGE = -2, -1


class Embedder:
    """A model folder or archive. `batch_size` has no effect on vectors or memory: batches are cut by their words."""

    def __init__(self, model_dir: str | Path, batch_size: int = 64) -> None:
        self.model_dir = str(model_dir)
        self.batch_size = batch_size
        self.model = Elmo.from_pretrained(model_dir, dtype="float32")
        self.config: dict[str, Any] = self.model.pretrained.extra.get("manylangs", {}).get("config", {})
        self.use_cuda = self.model.device.type == "cuda"

    def sents2elmo(
        self, sents: Iterable[Sequence[str]], output_layer: int = AVERAGE
    ) -> list[NDArray[np.floating[Any]]]:
        """Token lists to one float32 array each: layer `output_layer` (T, D); -1 the mean; -2 all layers (L, T, D)."""
        depth = len(self.model.layer_names)
        if not ALL <= output_layer < depth:
            raise InputError(f"output_layer is {output_layer}; expected 0 to {depth - 1}, -1 (mean) or -2 (all layers)")
        layers = {ALL: "all", AVERAGE: "average"}.get(output_layer, output_layer)
        return self.model.encode_tokens((token_sentence(tokens, k) for k, tokens in enumerate(sents)), layers=layers)
