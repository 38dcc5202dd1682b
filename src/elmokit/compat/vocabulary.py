"""bilm-tf's `Vocabulary`, which simple_elmo has too: words by number and numbers by word."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.chars import BOS, EOS, UNK
from elmokit.errors import InputError
from elmokit.weights.symbols import read_words

LISTS_NOT = "!!!MAXTERMID"  # a line of old files that is no word


class Vocabulary(tuple[str, ...]):
    """A tuple of words in the order of their numbers. Missing special words have the number -1, as there.

    Made of words, or as there of the name of a file that `read` takes.
    """

    def __new__(cls, words: str | Path | Iterable[str] = (), validate_file: bool = False) -> "Vocabulary":
        if isinstance(words, str | Path):
            return cls.read(words, validate_file=validate_file)
        return super().__new__(cls, words)

    @classmethod
    def read(cls, path: str | Path, *, validate_file: bool = False) -> "Vocabulary":
        """One word per line; `validate_file` refuses one without <S>, </S> and <UNK>."""
        words = cls(word for word in read_words(Path(path)) if word != LISTS_NOT)
        if validate_file and (absent := [word for word in (BOS, EOS, UNK) if word not in words.numbers]):
            raise InputError(f"{path}: lacks {' '.join(absent)}; each is a line of its own")
        return words

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By word; of duplicates the last."""
        return {word: number for number, word in enumerate(self)}

    @property
    def size(self) -> int:
        return len(self)

    @property
    def bos(self) -> int:
        return self.numbers.get(BOS, -1)

    @property
    def eos(self) -> int:
        return self.numbers.get(EOS, -1)

    @property
    def unk(self) -> int:
        return self.numbers.get(UNK, -1)

    def word_to_id(self, word: str) -> int:
        """The number of a word, that of <UNK> for one that is not listed."""
        return self.numbers.get(word, self.unk)

    def id_to_word(self, cur_id: int) -> str:
        return self[cur_id]

    def decode(self, cur_ids: Iterable[int]) -> str:
        """Words with spaces between them."""
        return " ".join(self[number] for number in cur_ids)

    def encode(self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True) -> NDArray[np.int32]:
        """Numbers between those of the boundaries, which change places for a reversed sentence. (T + 2,)"""
        words = sentence.split() if split and isinstance(sentence, str) else list(sentence)
        ends = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.array([ends[0], *map(self.word_to_id, words), ends[1]], dtype=np.int32)
