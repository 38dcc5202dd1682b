"""`Syllables`: words that hold spaces are read as their parts, whose vectors are averaged.

Treebanks of Vietnamese and others have words such as "chủ tịch", while running text, which models learn from, has its
parts between spaces. Layer 0 of a word is the mean of its parts', too.
"""

from collections.abc import Sequence

import torch

from elmokit.encoders.batches import BatchRunner
from elmokit.encoders.encoder import Encoder, digest_of
from elmokit.encoders.wrapped import Wrapped
from elmokit.layers import LayerStack
from elmokit.text import Sentence


class Syllables(Wrapped):
    """An encoder over the parts of words; `load_encoder("syllables:MODEL")` makes it."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.placed()

    def _build(self, device: torch.device, dtype: torch.dtype) -> "SyllableRunner":
        return SyllableRunner(self.encoder.placed(device, self.inner_dtype(dtype)))

    @property
    def source(self) -> str:
        return f"syllables:{self.encoder.source}"

    @property
    def fingerprint(self) -> str:
        """A digest of the model's own."""
        return digest_of(("syllables", self.encoder.fingerprint), {})

    def overlong(self, word: str) -> bool:
        """Whether the model reads only the beginning of a part."""
        return any(map(self.encoder.overlong, word.split()))

    def unknown(self, word: str) -> bool:
        """Whether the model knows none of the parts."""
        return all(map(self.encoder.unknown, word.split() or [word]))


class SyllableRunner(BatchRunner):
    """Runs the model over the parts, then averages those of each word."""

    def __init__(self, runner: BatchRunner) -> None:
        super().__init__(runner.device, runner.dtype)
        self.runner = runner

    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        parts = [[token.split() or [token] for token in sentence.tokens] for sentence in sentences]
        stack = self.runner.stack([Sentence.of(part for word in words for part in word) for words in parts]).inner()
        long = max((len(words) for words in parts), default=0)
        shares = torch.zeros(len(parts), long, stack.values.shape[2])  # (B, T, parts): the share of each part in a word
        for row, words in zip(shares, parts, strict=True):
            at = 0
            for t, word in enumerate(words):
                row[t, at : at + len(word)] = 1 / len(word)
                at += len(word)
        shares = shares.to(stack.values)
        lengths = torch.tensor([len(words) for words in parts])  # (B,)
        mask = (torch.arange(long)[None] < lengths[:, None]).to(stack.mask.device)  # (B, T)
        return LayerStack(torch.einsum("btp,lbpd->lbtd", shares, stack.values), mask, stack.names)
