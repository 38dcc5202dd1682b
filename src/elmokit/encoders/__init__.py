"""Sentences to layers and vectors. Names load on first use."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.encoders.aligned import Aligned
    from elmokit.encoders.alignment import AlignedModels, Alignment
    from elmokit.encoders.elmo.carry import CarriedElmo
    from elmokit.encoders.elmo.encoder import Elmo
    from elmokit.encoders.encoder import Encoder
    from elmokit.encoders.features import ElmoEmbedding, Features, MixedLayers, Part
    from elmokit.encoders.joined import Joined
    from elmokit.encoders.load import load_encoder
    from elmokit.encoders.results import Embedding
    from elmokit.encoders.static.distil import distil_corpus, distil_words
    from elmokit.encoders.static.encoder import Static
    from elmokit.encoders.static.load import load_table
    from elmokit.encoders.static.table import WordTable, export_word2vec
    from elmokit.encoders.syllables import Syllables
    from elmokit.encoders.transformer.encoder import Transformer

__all__ = [
    "Aligned", "AlignedModels", "Alignment", "CarriedElmo", "Elmo", "ElmoEmbedding", "Embedding", "Encoder",
    "Features", "Joined", "MixedLayers", "Part", "Static", "Syllables", "Transformer", "WordTable", "distil_corpus",
    "distil_words", "export_word2vec", "load_encoder", "load_table",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "aligned": "Aligned",
        "alignment": "AlignedModels Alignment",
        "elmo.carry": "CarriedElmo",
        "elmo.encoder": "Elmo",
        "encoder": "Encoder",
        "features": "ElmoEmbedding Features MixedLayers Part",
        "joined": "Joined",
        "load": "load_encoder",
        "results": "Embedding",
        "static.distil": "distil_corpus distil_words",
        "static.encoder": "Static",
        "static.load": "load_table",
        "static.table": "WordTable export_word2vec",
        "syllables": "Syllables",
        "transformer.encoder": "Transformer",
    },
)
