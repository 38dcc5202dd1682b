"""What the tests of classifiers share: batches with layers of a made-up encoder, and a plain training loop."""

from collections.abc import Sequence
from typing import Any

import torch

from elmokit.layers import LayerStack
from elmokit.tasks.task import Batch, Network
from elmokit.tasks.words import WordFeaturesConfig, WordReader, WordVocabulary
from elmokit.text import Sentence

DEPTH, WIDTH = 3, 6


def features(vocabulary: WordVocabulary, **changes: Any) -> WordFeaturesConfig:
    usual = {"word_dim": 8, "char_dim": 0, "elmo_depth": DEPTH, "elmo_width": WIDTH, "elmo_dropout": 0.0}
    return WordFeaturesConfig(n_words=len(vocabulary), **{**usual, **changes})


def layers(sentences: Sequence[Sentence], *, more: int = 0) -> LayerStack:
    """Layers that depend on a word and its left neighbour alone."""
    T = max(map(len, sentences), default=0) + more
    values = torch.zeros(DEPTH, len(sentences), T, WIDTH)
    for row, sentence in enumerate(sentences):
        for t, word in enumerate(sentence.tokens):
            seed = sum(map(ord, word)) * 31 + (sum(map(ord, sentence.tokens[t - 1])) if t else 0)
            values[:, row, t] = torch.randn(DEPTH, WIDTH, generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(T) < torch.tensor([len(sentence) for sentence in sentences])[:, None]
    return LayerStack(values, mask, ("0", "1", "2"))


def batch_of(examples: Sequence[Any], vocabulary: WordVocabulary, config: WordFeaturesConfig) -> Batch[Any]:
    reader = WordReader(vocabulary, config)
    sides = zip(*(example.sentences for example in examples), strict=True)
    words = tuple(reader.batch(side, stack=layers(side) if config.elmo_at != "none" else None) for side in sides)
    return Batch(examples, words)


def fit(network: Network[Any, Any], batch: Batch[Any], *, steps: int, rate: float = 0.01) -> list[float]:
    """The losses of some steps over one batch."""
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    losses = []
    network.train()
    for _ in range(steps):
        loss = network.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    network.eval()
    return losses
