"""Sentences to layers and vectors."""

from elmokit.encoders.carry import CarriedElmo
from elmokit.encoders.elmo import Elmo, Embedding
from elmokit.encoders.module import ElmoEmbedding, MixedLayers

__all__ = ["CarriedElmo", "Elmo", "ElmoEmbedding", "Embedding", "MixedLayers"]
