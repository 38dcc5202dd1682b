"""The weights of a biLM as AllenNLP named and stored them, and back.

    AllenNLP                                               elmokit's BiLM
    _token_embedder._char_embedding_weights                tokens.characters.weight
    _token_embedder.char_conv_K.weight, .bias              tokens.convolutions.K.weight, .bias
    _token_embedder._highways._layers.K.weight, .bias      tokens.highways.K: transform, and the gate negated, below it
    _token_embedder._projection.weight, .bias              tokens.projection.weight, .bias
    _elmo_lstm.SIDE_layer_K.input_linearity.weight         lstm.K.weight_x of one direction
    _elmo_lstm.SIDE_layer_K.state_linearity.weight         lstm.K.weight_h of one direction
    _elmo_lstm.SIDE_layer_K.state_linearity.bias           lstm.K.bias of one direction, with the forget bias in it
    _elmo_lstm.SIDE_layer_K.state_projection.weight        lstm.K.projection of one direction

Its gates stand in the order i, f, candidate, o, ours in the order i, candidate, f, o.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.nn.bilm import BiLM, BiLMConfig
from elmokit.weights import Pretrained
from elmokit.weights.pretrained import outline

TOKENS, LSTM = "_token_embedder", "_elmo_lstm"
OLD = "bilm."  # what elmokit 0.1.0 put before its own names


@dataclass(frozen=True, slots=True)
class Parts:
    """A model by AllenNLP's names; the forget bias is in the weights."""

    config: BiLMConfig
    weights: dict[str, Tensor]

    @classmethod
    def of(cls, made: Pretrained) -> "Parts":
        """Of a model that `load_model` read."""
        return cls(made.config, _to_allennlp(made.config, made.build().state_dict()))

    def fill(self, module: nn.Module, prefix: str) -> None:
        """Gives a module the parameters whose names begin with `prefix`; a dot in a name makes a module inside it."""
        for name, values in self.weights.items():
            if name.startswith(f"{prefix}."):
                *path, last = name.removeprefix(f"{prefix}.").split(".")
                owner = module
                for step in path:
                    if not hasattr(owner, step):
                        owner.add_module(step, nn.Module())
                    owner = owner.get_submodule(step)
                owner.register_parameter(last, nn.Parameter(values.detach().clone()))


def assemble(config: BiLMConfig, weights: Mapping[str, Tensor]) -> BiLM:
    """elmokit's network from AllenNLP's weights, or from those of the token encoder alone; gradients flow into them."""
    model = outline(config)
    for name, values in _to_elmokit(config, weights).items():
        owner, _, attribute = name.rpartition(".")
        place = model.get_submodule(owner)
        if values.requires_grad:
            delattr(place, attribute)  # a parameter has no history; a plain attribute may have one
            setattr(place, attribute, values)
        else:
            setattr(place, attribute, nn.Parameter(values, requires_grad=False))
    return model.eval()


def translate(state_dict: dict[str, Any], prefix: str, config: BiLMConfig) -> None:
    """In place: weights that elmokit 0.1.0 saved get AllenNLP's names; a table of cached words is left out."""
    state_dict.pop(f"{prefix}_word_embedding.weight", None)
    old = {name.removeprefix(prefix + OLD): name for name in state_dict if name.startswith(prefix + OLD)}
    if set(old) != set(outline(config).state_dict()):
        return
    tensors = {name: state_dict.pop(key) for name, key in old.items()}
    made = _to_allennlp(config, tensors, forget_bias=1.0)
    state_dict |= {prefix + name: values for name, values in made.items()}


def _to_allennlp(config: BiLMConfig, own: Mapping[str, Tensor], *, forget_bias: float = 0.0) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {f"{TOKENS}._char_embedding_weights": own["tokens.characters.weight"]}
    for kind in ("weight", "bias"):
        for k in range(len(config.tokens.filters)):
            made[f"{TOKENS}.char_conv_{k}.{kind}"] = own[f"tokens.convolutions.{k}.{kind}"]
        for k in range(config.tokens.n_highway):
            at = f"tokens.highways.{k}"
            both = own[f"{at}.transform.{kind}"], -own[f"{at}.gate.{kind}"]  # its gate lets the input through
            made[f"{TOKENS}._highways._layers.{k}.{kind}"] = torch.cat(both)
        if config.tokens.project:
            made[f"{TOKENS}._projection.{kind}"] = own[f"tokens.projection.{kind}"]
    for k in range(config.n_layers):
        for d, side in enumerate(config.directions):
            at, lstm = f"{LSTM}.{side}_layer_{k}", f"lstm.{k}"
            made[f"{at}.input_linearity.weight"] = _swap(own[f"{lstm}.weight_x"][d])
            made[f"{at}.state_linearity.weight"] = _swap(own[f"{lstm}.weight_h"][d])
            bias = _swap(own[f"{lstm}.bias"][d]).clone()
            bias.chunk(4)[1].add_(forget_bias)
            made[f"{at}.state_linearity.bias"] = bias
            if config.lstm.project:
                made[f"{at}.state_projection.weight"] = own[f"{lstm}.projection"][d]
    return made


def _to_elmokit(config: BiLMConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own: dict[str, Tensor] = {"tokens.characters.weight": weights[f"{TOKENS}._char_embedding_weights"]}
    for kind in ("weight", "bias"):
        for k in range(len(config.tokens.filters)):
            own[f"tokens.convolutions.{k}.{kind}"] = weights[f"{TOKENS}.char_conv_{k}.{kind}"]
        for k in range(config.tokens.n_highway):
            transform, gate = weights[f"{TOKENS}._highways._layers.{k}.{kind}"].chunk(2)
            own |= {f"tokens.highways.{k}.transform.{kind}": transform, f"tokens.highways.{k}.gate.{kind}": -gate}
        if config.tokens.project:
            own[f"tokens.projection.{kind}"] = weights[f"{TOKENS}._projection.{kind}"]
    if not any(name.startswith(LSTM) for name in weights):
        return own
    for k in range(config.n_layers):
        at = [f"{LSTM}.{side}_layer_{k}" for side in config.directions]
        for name, key in (("weight_x", "input_linearity.weight"), ("weight_h", "state_linearity.weight")):
            own[f"lstm.{k}.{name}"] = torch.stack([_swap(weights[f"{one}.{key}"]) for one in at])  # (R, 4H, P)
        own[f"lstm.{k}.bias"] = torch.stack([_swap(weights[f"{one}.state_linearity.bias"]) for one in at])
        if config.lstm.project:
            own[f"lstm.{k}.projection"] = torch.stack([weights[f"{one}.state_projection.weight"] for one in at])
    return own


def _swap(gates: Tensor) -> Tensor:
    """The second and third of four blocks change places: from one order to the other."""
    first, second, third, fourth = gates.chunk(4)
    return torch.cat([first, third, second, fourth])
