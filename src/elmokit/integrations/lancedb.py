"""ELMo as LanceDB's embedding function, registered as "elmokit".

elmo = get_registry().get("elmokit").create()

class Note(LanceModel):
    text: str = elmo.SourceField()
    vector: Vector(elmo.ndims()) = elmo.VectorField()
"""

from functools import cached_property
from typing import Any

import numpy as np

from elmokit.encoders import Encoder
from elmokit.errors import MissingExtraError
from elmokit.integrations.models import encoder_for
from elmokit.layers import LayerChoice

try:
    from lancedb.embeddings import TextEmbeddingFunction, register
except ImportError as error:
    raise MissingExtraError(f"lancedb is needed ({error})", extra="lancedb") from error

__all__ = ["ElmoEmbeddings"]


@register("elmokit")
class ElmoEmbeddings(TextEmbeddingFunction):  # type: ignore[misc]
    """One vector per text, the mean over its tokens; `name` is what `load_encoder` takes.

    LanceDB stores these fields with the table, and finds the function again if this module is imported.
    """

    name: str | None = None
    layers: str = "average"
    normalise: bool = True
    device: str = "auto"

    @cached_property
    def encoder(self) -> Encoder:
        """The model."""
        return encoder_for(self.name, device=self.device)

    def ndims(self) -> int:
        """D, the width of a vector."""
        return LayerChoice.parse(self.layers).width(self.encoder.depth, self.encoder.width)

    def generate_embeddings(self, texts: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """A vector of length D for each text."""
        found = self.encoder.encode(list(texts), layers=self.layers, normalise=self.normalise)
        return list(found.astype(np.float32))
