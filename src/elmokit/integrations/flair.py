"""`ELMoEmbeddings` for flair: the class that in flair itself needs AllenNLP 0.9, with the same name and arguments.

from elmokit.integrations.flair import ELMoEmbeddings      # was: from flair.embeddings.legacy import ELMoEmbeddings

tagger = SequenceTagger(embeddings=ELMoEmbeddings("original"), ...)
"""

from pathlib import Path
from typing import Any, Literal

import torch

from elmokit.encoders import Elmo, Encoder
from elmokit.errors import InputError, MissingExtraError, WeightsError
from elmokit.integrations.models import encoder_for, name_of
from elmokit.weights import load_pretrained

try:
    import flair
    from flair.data import Sentence
    from flair.embeddings.base import TokenEmbeddings, register_embeddings
except ImportError as error:
    raise MissingExtraError(f"flair is needed ({error})", extra="flair") from error

__all__ = ["ELMoEmbeddings"]

LAYERS = {"all": "concat:0..-1", "top": "top", "average": "average"}
PUBLISHED = {  # flair's names, and those of the catalogue
    "original": "allennlp:original",
    "small": "allennlp:small",
    "medium": "allennlp:medium",
    "large": "allennlp:5.5B",
    "5.5B": "allennlp:5.5B",
    "pt": "allennlp:pt",
    "portuguese": "allennlp:pt",
    "pubmed": "allennlp:pubmed",
}


@register_embeddings("elmokit.ELMoEmbeddings")
class ELMoEmbeddings(TokenEmbeddings):  # type: ignore[misc]
    """A vector for each token of flair's sentences.

    model           flair's names ("original", "small", "medium", "large", "5.5B", "pt", "pubmed"), or anything else
                    that `load_encoder` takes: a folder, an archive, a hub id, "en" for the bundled model
    options_file,   the two files of a model of AllenNLP's, instead of `model`
    weight_file
    embedding_mode  "all" (the default: all layers side by side), "top" or "average"

    A sentence's vectors do not depend on the sentences before it, as they did in AllenNLP.
    """

    def __init__(
        self,
        model: str = "original",
        options_file: str | None = None,
        weight_file: str | None = None,
        embedding_mode: Literal["all", "top", "average"] = "all",
    ) -> None:
        if embedding_mode not in LAYERS:
            raise InputError(f"embedding_mode {embedding_mode!r} not known; expected {', '.join(LAYERS)}")
        if (options_file is None) != (weight_file is None):
            raise InputError("one of options_file and weight_file was given; give both, or neither")
        super().__init__()
        self.model, self.embedding_mode = model, embedding_mode
        self.options_file, self.weight_file = options_file, weight_file
        self.name, self.static_embeddings = f"elmo-{model}-{embedding_mode}", True
        self.encoder = self._load()

    def _load(self) -> Encoder:
        if self.options_file is not None and self.weight_file is not None:
            pretrained = load_pretrained(options=Path(self.options_file), weights=Path(self.weight_file), softmax=False)
            return Elmo(pretrained, device=str(flair.device))
        return encoder_for(PUBLISHED.get(self.model, self.model), device=str(flair.device))

    @property
    def embedding_length(self) -> int:
        """The width of a token's vector."""
        return self.encoder.width * (self.encoder.depth if self.embedding_mode == "all" else 1)

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> list[Sentence]:
        words = [[token.text for token in sentence] for sentence in sentences]
        for sentence, vectors in zip(
            sentences, self.encoder.encode_tokens(words, layers=LAYERS[self.embedding_mode]), strict=True
        ):
            for token, vector in zip(sentence, torch.from_numpy(vectors).to(flair.device), strict=True):
                token.set_embedding(self.name, vector)
        return sentences

    def to_params(self) -> dict[str, Any]:
        """What flair stores with a model: the model's name, and a fingerprint of it."""
        model = self.model if self.model in PUBLISHED else name_of(self.encoder)
        files = {"options_file": self.options_file, "weight_file": self.weight_file}
        return {"model": model, **files, "embedding_mode": self.embedding_mode, "fingerprint": self.encoder.fingerprint}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ELMoEmbeddings":
        """From what `to_params` stored."""
        arguments = {key: value for key, value in params.items() if key != "fingerprint"}
        made = cls(**arguments)
        if made.encoder.fingerprint != params["fingerprint"]:
            raise WeightsError(f"{params['model']}: not the model that the embeddings were saved with")
        return made

    def extra_repr(self) -> str:
        """For printing."""
        return f"model={self.name}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "encoder": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self.encoder = self._load()
