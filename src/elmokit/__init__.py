"""elmokit: deep contextual word vectors (ELMo).

    from elmokit import Elmo

    elmo = Elmo.from_pretrained()                       # the bundled English model
    elmo.encode(["A sentence.", "Another one."])        # (2, D)
    elmo.encode_tokens("Each token has its vector.")    # (6, D)

Shape letters used throughout: B batch, T tokens, U word types, W columns of a type's row, C characters, L layers,
D width, H cell, P projection, R directions, N packed positions, V vocabulary, K labels.
"""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.encoders import Elmo, ElmoEmbedding, Encoder, Features, Joined, Part, Static, Transformer, load_encoder
    from elmokit.errors import ElmokitError
    from elmokit.index import Index
    from elmokit.layers import LayerChoice, LayerStack
    from elmokit.lm import LanguageModel
    from elmokit.nn import MixConfig, ScalarMix
    from elmokit.store import StoreOptions, write_vectors
    from elmokit.tasks import (
        Classifier,
        CoreferenceResolver,
        PairClassifier,
        QuestionAnswerer,
        RoleLabeller,
        Tagger,
        TaskModel,
    )
    from elmokit.text import Sentence
    from elmokit.weights import Pretrained, load_pretrained, save_pretrained

__version__ = "0.2.0.dev0"

__all__ = [
    "Classifier", "CoreferenceResolver", "Elmo", "ElmoEmbedding", "ElmokitError", "Encoder", "Features",
    "Index", "Joined", "LanguageModel", "LayerChoice", "LayerStack", "MixConfig", "PairClassifier", "Part",
    "Pretrained", "QuestionAnswerer", "RoleLabeller", "ScalarMix", "Sentence", "Static", "StoreOptions",
    "Tagger", "TaskModel", "Transformer", "__version__", "load_encoder", "load_pretrained", "save_pretrained",
    "write_vectors",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "encoders": "Elmo ElmoEmbedding Encoder Features Joined Part Static Transformer load_encoder",
        "errors": "ElmokitError",
        "index": "Index",
        "layers": "LayerChoice LayerStack",
        "lm": "LanguageModel",
        "nn": "MixConfig ScalarMix",
        "store": "StoreOptions write_vectors",
        "tasks": "Classifier CoreferenceResolver PairClassifier QuestionAnswerer RoleLabeller Tagger TaskModel",
        "text": "Sentence",
        "weights": "Pretrained load_pretrained save_pretrained",
    },
)
