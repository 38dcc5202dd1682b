"""Small models for tests: random weights in the official layout, as arrays for the reference and as a `Pretrained`.

The translation from the layout to the network is written here again, so that it does not lean on the package's readers.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

import reference
from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights import CodecSpec, Pretrained, TokenizerSpec

WORDS = ("<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "mat", ".")


class Tiny(NamedTuple):
    """One model, twice."""

    weights: dict[str, Any]
    options: dict[str, Any]
    pretrained: Pretrained

    def embed(self, tokens: list[str]) -> Any:
        """The reference's layers (L, T, D) without boundaries."""
        words = None if "char_cnn" in self.options else WORDS
        return reference.drop_boundaries(reference.embed(self.weights, self.options, tokens, vocabulary=words)[0])


def tiny_options(**changes: Any) -> dict[str, Any]:
    """Options of a model that runs in a millisecond; `lstm` and `char_cnn` are changed field by field."""
    cnn = {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4], [3, 6]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 2,
    }
    lstm = {
        "dim": 12,
        "projection_dim": 6,
        "n_layers": 2,
        "cell_clip": 3.0,
        "proj_clip": 3.0,
        "use_skip_connections": True,
    }
    options = {"char_cnn": {**cnn, **changes.pop("char_cnn", {})}, "lstm": {**lstm, **changes.pop("lstm", {})}}
    return {**options, **changes}


def tiny(
    options: dict[str, Any] | None = None,
    *,
    seed: int = 0,
    directions: tuple[int, ...] = (0, 1),
    tokenizer: TokenizerSpec | None = None,
) -> Tiny:
    options = options or tiny_options()
    weights = reference.random_official(np.random.default_rng(seed), options, directions=directions)
    return Tiny(weights, options, translate(weights, options, tokenizer=tokenizer))


def tiny_words(*, seed: int = 0) -> Tiny:
    """A word-level model over `WORDS`."""
    options = {"lstm": tiny_options()["lstm"], "n_tokens_vocab": len(WORDS)}
    return tiny(options, seed=seed)


def translate(
    weights: dict[str, Any], options: dict[str, Any], *, tokenizer: TokenizerSpec | None = None
) -> Pretrained:
    """The official layout as the network's own names."""
    lstm = options["lstm"]
    width, cell = lstm["projection_dim"], lstm["dim"]
    project = "CNN_proj/W_proj" in weights
    tensors: dict[str, Any] = {}
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        tokens = TokenEncoderConfig(
            char_dim=cnn["embedding"]["dim"],
            max_characters=cnn["max_characters_per_token"],
            filters=tuple((w, n) for w, n in cnn["filters"]),
            activation=cnn["activation"],
            n_highway=cnn.get("n_highway") or 0,
            projection_dim=width,
            project=project,
        )
        table = weights["char_embed"]
        tensors["tokens.characters.weight"] = np.concatenate([np.zeros((1, table.shape[1]), table.dtype), table])
        for i in range(len(cnn["filters"])):
            tensors[f"tokens.convolutions.{i}.weight"] = weights[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
            tensors[f"tokens.convolutions.{i}.bias"] = weights[f"CNN/b_cnn_{i}"]
        for k in range(cnn.get("n_highway") or 0):
            for ours, theirs in (("transform", "transform"), ("gate", "carry")):
                tensors[f"tokens.highways.{k}.{ours}.weight"] = weights[f"CNN_high_{k}/W_{theirs}"].T
                tensors[f"tokens.highways.{k}.{ours}.bias"] = weights[f"CNN_high_{k}/b_{theirs}"]
        codec = CodecSpec()
    else:
        table = weights["embedding"]
        tokens = TokenEncoderConfig(
            char_dim=0, word_dim=table.shape[1], n_words=len(table), projection_dim=width, project=project, n_highway=0
        )
        tensors["tokens.words.weight"] = table
        codec = CodecSpec("words", words=WORDS)
    if project:
        tensors["tokens.projection.weight"] = weights["CNN_proj/W_proj"].T
        tensors["tokens.projection.bias"] = weights["CNN_proj/b_proj"]
    sides = reference.directions_of(weights)
    projected = width < cell
    for layer in range(lstm["n_layers"]):
        at = [reference.cell_name(weights, d, layer) for d in sides]
        tensors[f"lstm.{layer}.weight_x"] = np.stack([weights[a + "W_0"][:width].T for a in at])
        tensors[f"lstm.{layer}.weight_h"] = np.stack([weights[a + "W_0"][width:].T for a in at])
        tensors[f"lstm.{layer}.bias"] = np.stack([weights[a + "B"] for a in at])
        if projected:
            tensors[f"lstm.{layer}.projection"] = np.stack([weights[a + "W_P_0"].T for a in at])
    config = BiLMConfig(
        tokens=tokens,
        lstm=LstmConfig(cell, width, projected, lstm.get("cell_clip"), lstm.get("proj_clip")),
        n_layers=lstm["n_layers"],
        skip_connections=lstm["use_skip_connections"],
        directions=tuple(("forward", "backward")[d] for d in sides),  # type: ignore[arg-type]
    )
    made = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
    return Pretrained(config, made, codec, tokenizer, origin="official", source="a tiny model")
