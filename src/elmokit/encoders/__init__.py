"""Sentences to layers and vectors."""

from elmokit.encoders.carry import CarriedElmo
from elmokit.encoders.elmo import Elmo, Embedding

__all__ = ["CarriedElmo", "Elmo", "Embedding"]
