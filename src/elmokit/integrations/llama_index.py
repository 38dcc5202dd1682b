"""ELMo as LlamaIndex's embedding model.

VectorStoreIndex.from_documents(documents, embed_model=ElmoEmbedding())
"""

from typing import Any

from elmokit.encoders import Encoder
from elmokit.errors import MissingExtraError
from elmokit.integrations.models import Model, encoder_for, name_of

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
except ImportError as error:
    raise MissingExtraError(f"llama-index-core is needed ({error})", extra="llama-index") from error

__all__ = ["ElmoEmbedding"]


class ElmoEmbedding(BaseEmbedding):  # type: ignore[misc]
    """One vector per text, the mean over its tokens; `model` is what `load_encoder` takes, or an encoder."""

    layers: str = "average"
    normalise: bool = True
    device: str = "auto"
    _encoder: Encoder = PrivateAttr()

    def __init__(self, model: Model = None, *, embed_batch_size: int = 256, **fields: Any) -> None:
        encoder = encoder_for(
            fields.pop("model_name", None) if model is None else model, device=fields.get("device", "auto")
        )
        super().__init__(model_name=name_of(encoder), embed_batch_size=embed_batch_size, **fields)
        self._encoder = encoder

    @classmethod
    def class_name(cls) -> str:
        """What it is called in saved components."""
        return "ElmoEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._encoder.encode(texts, layers=self.layers, normalise=self.normalise).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
