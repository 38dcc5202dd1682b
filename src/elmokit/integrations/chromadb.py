"""ELMo as Chroma's embedding function.

client.create_collection("texts", embedding_function=ElmoEmbeddingFunction())
"""

from typing import Any

import numpy as np

from elmokit.errors import MissingExtraError
from elmokit.integrations.models import Model, encoder_for, name_of

try:
    from chromadb import Documents, EmbeddingFunction, Embeddings
    from chromadb.utils.embedding_functions import register_embedding_function
except ImportError as error:
    raise MissingExtraError(f"chromadb is needed ({error})", extra="chromadb") from error

__all__ = ["ElmoEmbeddingFunction"]


@register_embedding_function
class ElmoEmbeddingFunction(EmbeddingFunction[Documents]):  # type: ignore[misc]
    """One vector per document, the mean over its tokens; `model` is what `load_encoder` takes, or an encoder.

    Chroma stores name, model and layers with the collection, and finds the function again if this module is imported.
    """

    def __init__(
        self, model: Model = None, *, layers: str | int = "average", normalise: bool = True, device: str = "auto"
    ) -> None:
        self.encoder = encoder_for(model, device=device)
        self.layers, self.normalise, self.device = layers, normalise, device

    def __call__(self, input: Documents) -> Embeddings:
        """A vector of length D for each document."""
        return list(self.encoder.encode(list(input), layers=self.layers, normalise=self.normalise).astype(np.float32))

    @staticmethod
    def name() -> str:
        """What Chroma stores it as."""
        return "elmokit"

    def get_config(self) -> dict[str, Any]:
        """What Chroma stores beside it."""
        named = {"model": name_of(self.encoder), "fingerprint": self.encoder.fingerprint}
        return {**named, "layers": self.layers, "normalise": self.normalise, "device": self.device}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> "ElmoEmbeddingFunction":
        """The function that a collection was made with."""
        options = {key: value for key, value in config.items() if key != "fingerprint"}
        return ElmoEmbeddingFunction(**options)

    def validate_config_update(self, old_config: dict[str, Any], new_config: dict[str, Any]) -> None:
        """Another model would give vectors that cannot be compared with those that are there."""
        for key in ("fingerprint", "layers", "normalise"):
            if old_config.get(key) != new_config.get(key):
                raise ValueError(
                    f"{key} was {old_config.get(key)!r}, now {new_config.get(key)!r}; make a new collection"
                )
