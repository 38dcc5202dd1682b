"""The output layer of a model as it comes off the disk: vocabulary and softmax, checked against each other."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import BOS, EOS, UNK
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors


class OutputLayer:
    """Words by id and back, and the softmax over them."""

    def __init__(self, pretrained: Pretrained, *, device: torch.device, dtype: torch.dtype) -> None:
        name = pretrained.source or "this model"
        learn = "fine-tune it with `elmokit finetune` to learn one, or load a model that was saved with its softmax"
        if pretrained.softmax is None:
            raise WeightsError(f"{name} holds no output layer: it gives vectors, but no probabilities; {learn}")
        if pretrained.vocabulary is None:
            raise WeightsError(
                f"{name} holds an output layer but no vocabulary that says which word each row is; put its vocab.txt "
                f"beside the weights, or {learn}"
            )
        output = pretrained.softmax
        if isinstance(output, SoftmaxTensors):
            found = tuple(output.weight.shape), tuple(output.bias.shape)
        else:
            found = (output.words, output.width), (output.words,)
        expected = (len(pretrained.vocabulary), pretrained.config.lstm.projection_dim)
        if found != (expected, expected[:1]):
            raise WeightsError(
                f"{name}: softmax weights {found[0]} and bias {found[1]} do not fit a vocabulary of {expected[0]} "
                f"words and vectors of {expected[1]}; vocabulary and weights seem to belong to different models"
            )
        self.vocabulary = tuple(pretrained.vocabulary)
        self.ids = {word: k for k, word in enumerate(self.vocabulary)}
        absent = [word for word in (BOS, EOS, UNK) if word not in self.ids]
        if absent:
            raise WeightsError(
                f"{name}: the vocabulary lacks {' '.join(absent)}; its lines and the softmax rows must match"
            )
        self.begin, self.end, self.unknown = (self.ids[word] for word in (BOS, EOS, UNK))
        self.softmax = output.build(device=device, dtype=dtype)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def targets(self, sentences: Sequence[Sentence]) -> NDArray[np.int64]:
        """Ids of every position, boundaries included; padding holds the begin. (B, T)"""
        width = max(map(len, sentences), default=0) + 2
        targets = np.full((len(sentences), width), self.begin, dtype=np.int64)
        for row, sentence in zip(targets, sentences, strict=True):
            row[1 : len(sentence) + 2] = [*self.numbers(sentence.tokens), self.end]
        return targets

    def numbers(self, words: Iterable[str]) -> list[int]:
        return [self.ids.get(word, self.unknown) for word in words]

    def barred(self, *words: str, unknown: bool = False) -> list[int]:
        """Ids that may not be proposed: those of the words, and of <UNK> unless it may."""
        return self.numbers(words if unknown else (*words, UNK))

    @torch.inference_mode()
    def log_probs(self, hidden: Tensor) -> Tensor:
        """(N, P) to (N, V), float32; for few positions."""
        return self.softmax.log_probs(hidden)
