"""Sentences to layers and vectors."""

from elmokit.encoders.carry import CarriedElmo
from elmokit.encoders.elmo import Elmo
from elmokit.encoders.encoder import Encoder
from elmokit.encoders.module import ElmoEmbedding, MixedLayers
from elmokit.encoders.ordered import Embedding

__all__ = ["CarriedElmo", "Elmo", "ElmoEmbedding", "Embedding", "Encoder", "MixedLayers"]
