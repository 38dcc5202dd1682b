"""fastText .bin models, which know any word by its parts. The one file that knows their library."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.errors import FormatError, MissingExtraError
from elmokit.layers import Vectors


class FastTextTable:
    """A model of the fasttext library in the shape of a `WordTable`: it has a vector for every word but the empty."""

    def __init__(self, path: Path) -> None:
        try:
            import fasttext
        except ImportError as error:
            raise MissingExtraError(f"{path} is a fastText .bin model", extra="fasttext") from error
        try:
            self.model: Any = fasttext.load_model(str(path))
        except ValueError as error:
            raise FormatError(f"{path}: the fasttext library cannot read it ({error})") from error
        self.path, self.source = path, str(path)

    @property
    def width(self) -> int:
        return int(self.model.get_dimension())

    def vector(self, word: str) -> Vectors | None:
        """The word's own vector and its parts', as fastText sums them. (D,)"""
        if not word:
            return None
        # The library reads a line at a time and takes white space for the end of a word.
        return np.asarray(self.model.get_word_vector("_".join(word.split()) or "_"), dtype=np.float32)

    @property
    def mean(self) -> Vectors:
        """Nothing is unknown but the empty word, whose vector is zero. (D,)"""
        return np.zeros(self.width, dtype=np.float32)

    @property
    def fingerprint(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
