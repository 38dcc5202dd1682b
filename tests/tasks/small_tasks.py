"""A task that a small network learns in a second: names are capitalised, and a name of two words is a place."""

from pathlib import Path

import numpy as np

import models
from elmokit.encoders import Elmo
from elmokit.tasks.setup import Setup, load_setup
from elmokit.tasks.tagging.task import NER, TaggedExample

SMALL = {
    "word_dim": 8,
    "char_dim": 4,
    "char_filters": "2:8",
    "hidden": 8,
    "lstm_layers": 1,
    "dropout": 0.1,
    "elmo_dropout": 0.1,
    "batch_size": 8,
    "learning_rate": 0.02,
    "epochs": 4,
}


def small_setup(**changes: object) -> Setup:
    return load_setup(NER, flags={**SMALL, **changes})


def tiny_elmo(*, seed: int = 0) -> Elmo:
    return Elmo(models.tiny(seed=seed).pretrained, device="cpu")


def write_columns(path: Path, n: int, *, seed: int) -> Path:
    """Sentences in IOB1, as CoNLL-2003 has them."""
    rng = np.random.default_rng(seed)
    lines: list[str] = ["-DOCSTART- -X- O", ""]
    for _ in range(n):
        length, k = int(rng.integers(2, 8)), 0
        rows: list[tuple[str, str]] = []
        while k < length:
            match rng.integers(0, 4):
                case 0:
                    rows.append((str(rng.choice(["Ann", "Bob", "Cid"])), "I-PER"))
                case 1:
                    rows += [("New", "I-LOC"), (str(rng.choice(["York", "Delhi"])), "I-LOC")]
                case _:
                    rows.append((str(rng.choice(["sees", "the", "cat", "and"])), "O"))
            k = len(rows)
            rows.append(("and", "O"))  # names never touch, so that IOB1 writes no B
        lines += [f"{word} X {tag}" for word, tag in rows] + [""]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_data(folder: Path) -> tuple[list[TaggedExample], list[TaggedExample]]:
    """Training and development sentences, read from files in this folder."""
    train = write_columns(folder / "train.conll", 60, seed=1)
    dev = write_columns(folder / "dev.conll", 20, seed=2)
    return NER.read(train, NER.settings), NER.read(dev, NER.settings)
