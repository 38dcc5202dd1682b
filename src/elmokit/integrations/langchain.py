"""ELMo as LangChain's `Embeddings`.

InMemoryVectorStore.from_texts(texts, ElmoEmbeddings()).similarity_search("a question")
"""

from elmokit.errors import MissingExtraError
from elmokit.integrations.models import Model, encoder_for

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise MissingExtraError(f"langchain-core is needed ({error})", extra="langchain") from error

__all__ = ["ElmoEmbeddings"]


class ElmoEmbeddings(Embeddings):  # type: ignore[misc]
    """One vector per text, the mean over its tokens; `model` is what `load_encoder` takes, or an encoder."""

    def __init__(
        self, model: Model = None, *, layers: str | int = "average", normalise: bool = True, device: str = "auto"
    ) -> None:
        self.encoder, self.layers, self.normalise = encoder_for(model, device=device), layers, normalise

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector of length D for each text."""
        vectors: list[list[float]] = self.encoder.encode(texts, layers=self.layers, normalise=self.normalise).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """The same for one text."""
        return self.embed_documents([text])[0]
