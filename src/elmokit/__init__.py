"""elmokit: deep contextual word vectors (ELMo).

Shape letters used throughout: B batch, T tokens, U word types, W columns of a type's row, C characters, L layers,
D width, H cell, P projection, R directions, N packed positions, V vocabulary, K labels.
"""

__version__ = "0.1.0"
