"""A language model of fifteen words, and what it says of a prefix or suffix by a run for this alone."""

from dataclasses import replace

import numpy as np
import torch

from elmokit.chars import ByteCodec
from elmokit.lm import LanguageModel
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors

WORDS = ("<S>", "</S>", "<UNK>", "the", ".", "cat", "sat", "on", "mat", "a", "dog", "ran", "river", "of", "bank")
SENTENCES = [["the", "cat", "sat", "."], ["dog"], ["a", "zebra", "ran", "on", "the", "bank", "of", "the", "river"], []]
CONFIG = BiLMConfig(
    tokens=TokenEncoderConfig(char_dim=4, max_characters=10, filters=((1, 4), (2, 6)), n_highway=1, projection_dim=5),
    lstm=LstmConfig(cell_dim=7, projection_dim=5),
    n_layers=2,
)


def tiny(directions=("forward", "backward"), **fields) -> Pretrained:
    bilm = BiLM(replace(CONFIG, directions=directions))
    initialise(bilm, seed=3)
    for layer in bilm.lstm:  # larger than fresh weights, so that context matters
        layer.weight_x.data.mul_(4)
        layer.weight_h.data.mul_(4)
        layer.projection.data.mul_(3)
    source = torch.Generator().manual_seed(5)
    softmax = SoftmaxTensors(torch.randn(len(WORDS), 5, generator=source), torch.randn(len(WORDS), generator=source))
    softmax.bias[:2] -= 1  # sentences longer than a word or two
    return Pretrained.of(bilm, **{"vocabulary": WORDS, "softmax": softmax, **fields})


def after(model: LanguageModel, words: list[str], direction: str) -> torch.Tensor:
    """The log probabilities of every word after reading a boundary and the words, one run for this alone. (V,)"""
    pretrained = model.pretrained
    bilm = pretrained.build()
    codec = ByteCodec(pretrained.config.tokens.max_characters)
    boundary = codec.begin if direction == "forward" else codec.end
    types = torch.from_numpy(np.stack([boundary, *codec.encode(words)]))
    index = torch.arange(len(types))
    if direction == "backward":
        index = torch.cat([index[1:], index[:1]])
    with torch.no_grad():
        stack, _ = bilm(types, index[None], np.array([len(types)]))
    half = stack.values[-1, 0].chunk(len(bilm.config.directions), dim=-1)[bilm.config.directions.index(direction)]
    hidden = half[-1] if direction == "forward" else half[0]
    assert pretrained.softmax is not None
    weight, bias = pretrained.softmax
    return torch.log_softmax(weight @ hidden + bias, dim=0)


def number(word: str) -> int:
    return WORDS.index(word) if word in WORDS else WORDS.index("<UNK>")
