"""elmokit: deep contextual word vectors (ELMo).

    from elmokit import Elmo

    elmo = Elmo.from_pretrained("path/to/model")
    elmo.encode(["A sentence.", "Another one."])        # (2, D)
    elmo.encode_tokens("Each token has its vector.")    # (6, D)

Shape letters used throughout: B batch, T tokens, U word types, W columns of a type's row, C characters, L layers,
D width, H cell, P projection, R directions, N packed positions, V vocabulary, K labels.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elmokit.encoders import Elmo, ElmoEmbedding, Encoder, Static, Transformer, load_encoder
    from elmokit.errors import ElmokitError
    from elmokit.features import Features, Joined, Part
    from elmokit.layers import LayerChoice, LayerStack
    from elmokit.nn.mix import MixConfig, ScalarMix
    from elmokit.store import StoreOptions, write_vectors
    from elmokit.tasks.classify import Classifier
    from elmokit.tasks.coref import CoreferenceResolver
    from elmokit.tasks.entail import PairClassifier
    from elmokit.tasks.qa import QuestionAnswerer
    from elmokit.tasks.roles import RoleLabeller
    from elmokit.tasks.saved import Tagger, TaskModel
    from elmokit.text import Sentence
    from elmokit.weights import Pretrained, load_pretrained, save_pretrained

__version__ = "0.2.0.dev0"

# What `elmokit` offers, and where it lives: loaded when first asked for, so that `import elmokit` costs nothing.
_HOMES = {
    "Classifier": "elmokit.tasks.classify",
    "CoreferenceResolver": "elmokit.tasks.coref",
    "Elmo": "elmokit.encoders",
    "ElmoEmbedding": "elmokit.encoders",
    "ElmokitError": "elmokit.errors",
    "Encoder": "elmokit.encoders",
    "Features": "elmokit.features",
    "Joined": "elmokit.features",
    "LayerChoice": "elmokit.layers",
    "LayerStack": "elmokit.layers",
    "MixConfig": "elmokit.nn.mix",
    "PairClassifier": "elmokit.tasks.entail",
    "Part": "elmokit.features",
    "Pretrained": "elmokit.weights",
    "QuestionAnswerer": "elmokit.tasks.qa",
    "RoleLabeller": "elmokit.tasks.roles",
    "ScalarMix": "elmokit.nn.mix",
    "Sentence": "elmokit.text",
    "Static": "elmokit.encoders",
    "StoreOptions": "elmokit.store",
    "Tagger": "elmokit.tasks.saved",
    "TaskModel": "elmokit.tasks.saved",
    "Transformer": "elmokit.encoders",
    "load_encoder": "elmokit.encoders",
    "load_pretrained": "elmokit.weights",
    "save_pretrained": "elmokit.weights",
    "write_vectors": "elmokit.store",
}

__all__ = [
    "Classifier",
    "CoreferenceResolver",
    "Elmo",
    "ElmoEmbedding",
    "ElmokitError",
    "Encoder",
    "Features",
    "Joined",
    "LayerChoice",
    "LayerStack",
    "MixConfig",
    "PairClassifier",
    "Part",
    "Pretrained",
    "QuestionAnswerer",
    "RoleLabeller",
    "ScalarMix",
    "Sentence",
    "Static",
    "StoreOptions",
    "Tagger",
    "TaskModel",
    "Transformer",
    "__version__",
    "load_encoder",
    "load_pretrained",
    "save_pretrained",
    "write_vectors",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'elmokit' has no attribute {name!r}; it offers {', '.join(sorted(_HOMES))}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
