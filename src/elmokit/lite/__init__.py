"""The bundled models, and any in elmokit's own format, by NumPy and the C alone: no torch is imported or needed.

from elmokit.lite import LiteElmo

elmo = LiteElmo.from_pretrained()
elmo.encode(["A sentence.", "Another one."])  # (2, D)
"""

from elmokit.lite.encoder import LiteElmo

__all__ = ["LiteElmo"]
