"""A folder with a small language model, a tagger on it, and two indexes: what `elmokit serve` can be given."""

from pathlib import Path
from typing import NamedTuple

import torch

from elmokit import Elmo
from elmokit.index import Index, IndexSettings
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import NER
from elmokit.weights import save_pretrained
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors

WORDS = ("<S>", "</S>", "<UNK>", "the", ".", "cat", "sat", "on", "mat", "a", "dog", "ran", "river", "of", "bank")
CONFIG = BiLMConfig(
    tokens=TokenEncoderConfig(char_dim=4, max_characters=10, filters=((1, 4), (2, 6)), n_highway=1, projection_dim=5),
    lstm=LstmConfig(cell_dim=7, projection_dim=5),
    n_layers=2,
)
COLUMNS = "Ann X I-PER\nsees X O\nNew X I-LOC\nYork X I-LOC\n\nthe X O\ncat X O\nsees X O\nBob X I-PER\n\n"
SMALL = {"word_dim": 4, "char_dim": 2, "char_filters": "2:4", "hidden": 4, "lstm_layers": 1, "epochs": 1}
OLD = ["The bank of the river.", "A dog ran on the bank.", "The cat sat on the bank."] * 4
NEW = ["The bank sat on a cat.", "A bank ran.", "A bank, a bank, the bank of the mat."] * 4


class World(NamedTuple):
    """Where each thing is."""

    model: Path
    tagger: Path
    old: Path
    new: Path


def make_world(folder: Path) -> World:
    bilm = BiLM(CONFIG)
    initialise(bilm, seed=3)
    source = torch.Generator().manual_seed(5)
    softmax = SoftmaxTensors(torch.randn(len(WORDS), 5, generator=source), torch.randn(len(WORDS), generator=source))
    model = save_pretrained(Pretrained.of(bilm, vocabulary=WORDS, softmax=softmax), folder / "lm")
    elmo = Elmo.from_pretrained(model, device="cpu")
    data = folder / "data.conll"
    data.write_text(COLUMNS * 4)
    examples = NER.read(data, NER.settings)
    setup = load_setup(NER, flags=SMALL)
    tagger = train_task(NER, setup, examples, examples, encoder=elmo, device="cpu").save(folder / "tagger")
    for name, texts in (("old", OLD), ("new", NEW)):
        numbered = [f"{text} Number {k}." for k, text in enumerate(texts)]
        Index.build(elmo, map(elmo.tokenizer.tokenize, numbered), folder / name, settings=IndexSettings())
    return World(model, tagger, folder / "old", folder / "new")
