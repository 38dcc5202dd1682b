"""AllenNLP's names for the weights of its biLM, so that a network saved there loads here."""

from typing import Any

import torch
from torch import Tensor

from elmokit.nn.bilm import BiLM
from elmokit.weights.names import Row, View, lay_out


def _same(parameter: Tensor) -> Tensor:
    return parameter


def _gate(block: int) -> View:
    return lambda t: t.chunk(4)[block]


def _lstm(key: str, name: str) -> list[Row]:
    """Its rows stand in the order i, f, candidate, o; ours, counted here, in the order i, candidate, f, o."""
    return [Row(f"_elmo_lstm.{{side}}_layer_{{k}}.{key}", f"lstm.{{k}}.{name}", _gate(block)) for block in (0, 2, 1, 3)]


TABLE = (
    Row("_token_embedder._char_embedding_weights", "tokens.characters.weight", _same),
    Row("_token_embedder.char_conv_{k}.weight", "tokens.convolutions.{k}.weight", _same),
    Row("_token_embedder.char_conv_{k}.bias", "tokens.convolutions.{k}.bias", _same),
    Row("_token_embedder._highways._layers.{k}.weight", "tokens.highways.{k}.transform.weight", _same),
    Row("_token_embedder._highways._layers.{k}.weight", "tokens.highways.{k}.gate.weight", _same),  # negated
    Row("_token_embedder._highways._layers.{k}.bias", "tokens.highways.{k}.transform.bias", _same),
    Row("_token_embedder._highways._layers.{k}.bias", "tokens.highways.{k}.gate.bias", _same),  # negated
    Row("_token_embedder._projection.weight", "tokens.projection.weight", _same),
    Row("_token_embedder._projection.bias", "tokens.projection.bias", _same),
    *_lstm("input_linearity.weight", "weight_x"),
    *_lstm("state_linearity.weight", "weight_h"),
    *_lstm("state_linearity.bias", "bias"),
    Row("_elmo_lstm.{side}_layer_{k}.state_projection.weight", "lstm.{k}.projection", _same),
)
CACHES = ("_word_embedding.weight",)  # the table of vocab_to_cache, made anew here


def translate(state_dict: dict[str, Any], prefix: str, bilm: BiLM) -> None:
    """In place, where the weights under `prefix` carry AllenNLP's names; otherwise nothing changes."""
    if f"{prefix}_token_embedder._char_embedding_weights" not in state_dict:
        return
    own = {name: torch.empty_like(value, device="cpu") for name, value in bilm.state_dict().items()}
    filled = set()
    for place in lay_out(TABLE, own, [{"side": side} for side in bilm.config.directions]):
        stored = state_dict.get(prefix + place.key)
        if stored is not None and tuple(stored.shape) == place.shape({n: tuple(t.shape) for n, t in own.items()}):
            place.fill(own, stored)
            del state_dict[prefix + place.key]
            filled |= {part.name for part in place.parts}
    for name in filled:
        if ".gate." in name:
            own[name].neg_()  # its gate lets the input through, ours the change
        elif name.startswith("lstm.") and name.endswith(".bias"):
            own[name].chunk(4, dim=1)[2].sub_(bilm.config.lstm.forget_bias)  # it kept the forget bias in the weights
        state_dict[f"{prefix}bilm.{name}"] = own[name]
    for name in CACHES:
        state_dict.pop(prefix + name, None)
