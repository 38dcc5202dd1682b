"""The biLM over character ids, as AllenNLP's `Elmo` and `ElmoEmbedder.elmo_bilm` held it.

It loads weights under AllenNLP's names as well as under elmokit's own.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.chars import N_BYTE_IDS, ByteCodec, Codec
from elmokit.compat.allennlp.source import ConfigurationError
from elmokit.encoders.elmo.carry import RowStates
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, State
from elmokit.weights.names import Row, View, lay_out

Ints = NDArray[np.int64]
WORDS_AT_ONCE = 4096


class CarriedState(nn.Module):
    """The LSTM state of each row, carried from call to call: what stands at `_elmo_lstm` of AllenNLP's biLM.

    `stateful` may be set at any time; `reset_states()` forgets.
    """

    def __init__(self, *, stateful: bool) -> None:
        super().__init__()
        self.stateful = stateful
        self.rows = RowStates()
        self._turn = threading.Lock()

    def reset_states(self) -> None:
        """Every row starts from zero again."""
        self.rows = RowStates()

    def through(self, bilm: BiLM, rows: int, run: Callable[[State | None], tuple[LayerStack, State]]) -> LayerStack:
        """One batch: each row starts in the state in which it ended the batch before."""
        if not self.stateful:
            return run(None)[0]
        with self._turn:
            stack, ended = run(self.rows.first(rows, bilm))
            with torch.inference_mode(False):  # state left by inference may be trained on next
                self.rows.update(ended)
        return stack

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"_turn": threading.Lock()})  # type: ignore[no-untyped-call]


class CharacterBiLM(nn.Module):
    """Character ids (B, T, C) to {"activations": [(B, T + 2, D)] * L, "mask": (B, T + 2) int64}, boundaries in it.

    Each distinct word of a batch is encoded once. With `vocab_to_cache` and a frozen model, word ids take their vectors
    from a table made once for the whole list; word 0 is padding.
    """

    def __init__(
        self, bilm: BiLM, codec: Codec, carried: CarriedState, *, vocab_to_cache: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(codec, ByteCodec):
            raise ConfigurationError(
                "this model has no character ids of AllenNLP's kind; use ElmoEmbedder, which takes tokens, or "
                "elmokit.encoders.ElmoEmbedding"
            )
        self.bilm, self.codec = bilm, codec
        self._elmo_lstm = carried
        self._vocabulary = list(vocab_to_cache or ())
        self._table: tuple[object, Tensor] | None = None  # of which weights; (2 + V, P), boundaries first
        self.register_load_state_dict_pre_hook(_load_either_naming)  # type: ignore[no-untyped-call]

    @property
    def num_layers(self) -> int:
        """Layers that come out, the token layer included."""
        return self.bilm.config.depth

    def get_output_dim(self) -> int:
        return self.bilm.config.width

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        weight = next(self.bilm.parameters())
        trained = any(p.requires_grad for p in self.bilm.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            if word_inputs is not None and not trained and self._knows(word_inputs):
                words: Ints = word_inputs.cpu().numpy()
                index, lengths = _between_boundaries(words + 2, words > 0)
                vectors = self._cached(weight)
            else:
                types, index, lengths = self._distinct(inputs)
                vectors = self.bilm.tokens(torch.from_numpy(types).to(weight.device))  # (U, P)
            places = torch.from_numpy(index).to(weight.device)
            stack = self._elmo_lstm.through(
                self.bilm, len(lengths), lambda state: self.bilm.contextualise(vectors, places, lengths, state=state)
            )
        missing = inputs.shape[1] + 2 - stack.values.shape[2]  # columns of padding that no sentence reaches
        values = nn.functional.pad(stack.values, (0, 0, 0, missing))  # (L, B, T + 2, D)
        return {"activations": list(values), "mask": nn.functional.pad(stack.mask, (0, missing)).long()}

    def _distinct(self, inputs: Tensor) -> tuple[NDArray[np.int32], Ints, Ints]:
        """The rows of the distinct words, the boundaries first; which stands where; the lengths with boundaries."""
        ids: Ints = inputs.detach().cpu().numpy()  # (B, T, C)
        if ids.ndim != 3 or ids.shape[-1] != self.codec.width:
            raise ConfigurationError(
                f"character ids of shape {ids.shape}, expected (sentences, tokens, {self.codec.width}): this model's "
                f"words have at most {self.codec.width - 2} characters, and batch_to_ids makes rows of 50"
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < N_BYTE_IDS:
            raise ConfigurationError(f"character ids from {ids.min()} to {ids.max()}, expected 0 to {N_BYTE_IDS - 1}")
        real = np.asarray((ids > 0).any(axis=-1))  # (B, T)
        rows, inverse = np.unique(ids[real], axis=0, return_inverse=True)
        words = np.zeros(real.shape, dtype=np.int64)
        words[real] = inverse.reshape(-1) + 2
        types = np.concatenate([self.codec.begin[None], self.codec.end[None], rows.astype(np.int32)])  # (U, C)
        return types, *_between_boundaries(words, real)

    def _knows(self, word_inputs: Tensor) -> bool:
        return bool(self._vocabulary) and (word_inputs.numel() == 0 or int(word_inputs.max()) < len(self._vocabulary))

    def _cached(self, weight: Tensor) -> Tensor:
        known, stamp = self._table, (weight.device, weight.dtype, weights_stamp(self.bilm))
        if known is None or known[0] != stamp:
            rows = [self.codec.begin[None], self.codec.end[None], self.codec.encode(self._vocabulary)]
            parts = torch.split(torch.from_numpy(np.concatenate(rows)).to(weight.device), WORDS_AT_ONCE)
            self._table = known = stamp, torch.cat([self.bilm.tokens(part) for part in parts])  # (2 + V, P)
        return known[1]


def weights_stamp(bilm: BiLM) -> object:
    """Another one whenever the weights that make word vectors were loaded, trained or changed in place."""
    return tuple((id(p), 0 if p.is_inference() else p._version) for p in bilm.tokens.parameters())


def _between_boundaries(words: Ints, real: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Words (B, T), numbered from 2, to an index (B, longest + 2) with boundaries, and lengths with them."""
    lengths = real.sum(axis=1)
    T = int(lengths.max(initial=0))
    if not np.array_equal(real, np.arange(real.shape[1]) < lengths[:, None]):
        raise ConfigurationError("a sentence has padding between its words; words come first, then padding")
    index = np.zeros((len(words), T + 2), dtype=np.int64)
    index[:, 1:-1] = np.where(real[:, :T], words[:, :T], 0)
    index[np.arange(len(words)), lengths + 1] = 1
    return index, lengths + 2


def _load_either_naming(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights saved by AllenNLP come under other names and in another order of gates."""
    assert isinstance(module, CharacterBiLM)
    translate(state_dict, prefix, module.bilm)


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
    shapes = {name: tuple(value.shape) for name, value in own.items()}
    places = lay_out(TABLE, own, [{"side": side} for side in bilm.config.directions])
    given = [p for p in places if tuple(getattr(state_dict.get(prefix + p.key), "shape", ())) == p.shape(shapes)]
    # A parameter is made of several arrays (both directions, four gates). Unless all are there, none is used, and
    # torch names the parameter among the missing keys and the arrays among the unexpected ones.
    absent = {part.name for place in places if place not in given for part in place.parts}
    filled = set(own) - absent
    for place in given:
        if filled.issuperset(part.name for part in place.parts):
            place.fill(own, state_dict.pop(prefix + place.key))
    for name in filled:
        if ".gate." in name:
            own[name].neg_()  # its gate lets the input through, ours the change
        elif name.startswith("lstm.") and name.endswith(".bias"):
            own[name].chunk(4, dim=1)[2].sub_(bilm.config.lstm.forget_bias)  # it kept the forget bias in the weights
        state_dict[f"{prefix}bilm.{name}"] = own[name]
    for name in CACHES:
        state_dict.pop(prefix + name, None)
