"""Make the tiny ELMoForManyLangs models here and the vectors that tool gives for them.

Run once, in an environment of its own: Python 3.11 with torch 2.13, numpy, h5py, overrides and
elmoformanylangs 0.0.4.post2 (`pip install --no-deps` for the last one: it asks for more than it uses).

    python tests/data/manylangs/make_manylangs.py
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from elmoformanylangs import Embedder

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
import reference  # noqa: E402  (the random weights; the vectors come from elmoformanylangs alone)

IDEOGRAPHIC_SPACE = "\u3000"
LONG = "verylongword" * 4  # 48 code points: the cut form of a longer token stands in word.dic
SENTENCES = [
    ["The", "cat", "sat", "on", "the", "mat", "."],
    ["naïve", "Zürich", "日本語", "neverseen", "🙂"],
    [LONG + "withatail", "cat"],
    ["。", IDEOGRAPHIC_SPACE, f"a{IDEOGRAPHIC_SPACE}b", ""],
    [],
    ["<bos>", "cat", "<eos>", "<pad>", "<oov>"],  # literal names: that tool takes the first and third as boundaries
    ["cat"],
]
SPECIAL_CHARACTERS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
SPECIAL_WORDS = ["<oov>", "<bos>", "<eos>", "<pad>"]
CHARACTERS = [*"Tahectsonm.nïvZürich日本gldyw。b", IDEOGRAPHIC_SPACE]
WORDS = ["The", "cat", "the", "naïve", "日本語", LONG, IDEOGRAPHIC_SPACE, "。"]


def config(*, char_dim: int, word_dim: int, limit: int, activation: str, **encoder: float | None) -> dict:
    sizes = {"name": "elmo", "projection_dim": 6, "dim": 10, "n_layers": 2, "cell_clip": None, "proj_clip": None}
    return {
        "encoder": {**sizes, **encoder},
        "token_embedder": {
            "name": "cnn",
            "activation": activation,
            "filters": [[1, 3], [2, 4], [3, 5]],
            "n_highway": 2,
            "word_dim": word_dim,
            "char_dim": char_dim,
            "max_characters_per_token": limit,
        },
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }


CONFIGS = {
    "both": config(char_dim=5, word_dim=4, limit=50, activation="relu", cell_clip=0.6, proj_clip=0.8),
    "characters": config(char_dim=5, word_dim=0, limit=10, activation="tanh"),
    "words": config(char_dim=0, word_dim=4, limit=50, activation="relu", n_layers=1, cell_clip=3, proj_clip=0),
}
ARGUMENTS = {"seed": 1, "gpu": 1, "config_path": "/elsewhere/configs/tiny.json", "optimizer": "adam", "lr": 0.001}


def write_dictionary(path: Path, symbols: list[str]) -> None:
    """`symbol<TAB>id` lines. U+3000 counts as white space and is stripped on reading, so an id alone means it too."""
    lines = [f"{symbol}\t{i}\n" for i, symbol in enumerate(symbols)]
    if path.name == "word.dic":
        lines[symbols.index(IDEOGRAPHIC_SPACE)] = f"{symbols.index(IDEOGRAPHIC_SPACE)}\n"
    path.write_text("".join(lines), encoding="utf-8")


def write_model(folder: Path, made: dict, rng: np.random.Generator) -> None:
    folder.mkdir(exist_ok=True)
    characters = [*SPECIAL_CHARACTERS, *dict.fromkeys(CHARACTERS)]
    words = [*SPECIAL_WORDS, *WORDS]
    embedder, encoder = reference.random_manylangs(rng, made, len(words), len(characters))
    for name, tensors in (("token_embedder.pkl", embedder), ("encoder.pkl", encoder)):
        torch.save({key: torch.from_numpy(value) for key, value in tensors.items()}, folder / name)
    (folder / "config.json").write_text(json.dumps(ARGUMENTS) + "\n")
    (folder / "tiny.json").write_text(json.dumps(made, indent=2) + "\n")
    if made["token_embedder"]["char_dim"]:
        write_dictionary(folder / "char.dic", characters)
    if made["token_embedder"]["word_dim"]:
        write_dictionary(folder / "word.dic", words)


def main() -> None:
    rng = np.random.default_rng(20240501)
    expected = {}
    for name, made in CONFIGS.items():
        write_model(HERE / name, made, rng)
        for layer in range(-2, made["encoder"]["n_layers"] + 1):
            # A new Embedder each time: it carries its state into the next call.
            # Its average divides by zero on an empty sentence; the other codes give zero rows.
            sentences = [sentence for sentence in SENTENCES if sentence or layer != -1]
            vectors = Embedder(str(HERE / name), batch_size=64).sents2elmo(sentences, output_layer=layer)
            assert [v.shape[-2] for v in vectors] == [len(sentence) for sentence in sentences]
            assert all(v.dtype == np.float32 for v in vectors)
            expected[f"{name}/{layer}"] = np.concatenate(vectors, axis=-2)
    np.savez_compressed(HERE / "expected.npz", **expected)
    (HERE / "sentences.json").write_text(json.dumps(SENTENCES, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
