"""ELMoForManyLangs folders, turned into the official conventions on reading. See Che et al. 2018.

That tool's highway gate keeps the input where the official one lets the change through, so its gate is negated
(sigmoid(-z) = 1 - sigmoid(z)); its LSTM rows stand in the order i, f, candidate, o; its forget bias is in the weights,
so none is added; its residual connections are always on. Shapes are taken from the tensors, the rest from the config.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from elmokit.chars import CodecSpec
from elmokit.config import Clip, Range, read_json, revive
from elmokit.errors import ConfigError, WeightsError
from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights.names import Place, Row, View, lay_out
from elmokit.weights.pretrained import Pretrained, check_codec, check_numbers, parameter_shapes
from elmokit.weights.symbols import read_words

EMBEDDER, ENCODER = "token_embedder.pkl", "encoder.pkl"
IDEOGRAPHIC_SPACE = "\u3000"
STANDARD: dict[str, Any] = {  # what is not in the tensors, as in the published models, for folders without their config
    "encoder": {"name": "elmo", "cell_clip": 3, "proj_clip": 3},
    "token_embedder": {"name": "cnn", "activation": "relu", "max_characters_per_token": 50},
}


@dataclass(frozen=True, slots=True)
class _Arguments:
    config_path: str = ""


@dataclass(frozen=True, slots=True)
class _Encoder:
    name: str = "elmo"
    cell_clip: Clip = None
    proj_clip: Clip = None


@dataclass(frozen=True, slots=True)
class _TokenEmbedder:
    name: str = "cnn"
    activation: Literal["relu", "tanh"] = "relu"
    max_characters_per_token: Annotated[int, Range(3, 10_000_000)] = 50


@dataclass(frozen=True, slots=True)
class _Stated:
    """What of a model's configuration is not in its tensors; such files hold more."""

    encoder: _Encoder
    token_embedder: _TokenEmbedder


def _same(parameter: Tensor) -> Tensor:
    return parameter


def _gate(block: int) -> View:
    """The rows of one gate of an LSTM weight (4H, ...), counted in our order: i, candidate, f, o."""
    return lambda t: t.chunk(4)[block]


def _lstm_rows(key: str, name: str) -> list[Row]:
    return [Row(f"{ENCODER}/{{side}}_layer_{{k}}.{key}", f"lstm.{{k}}.{name}", _gate(block)) for block in (0, 2, 1, 3)]


TABLE = (
    Row(f"{EMBEDDER}/word_emb_layer.embedding.weight", "tokens.words.weight", _same),
    Row(f"{EMBEDDER}/char_emb_layer.embedding.weight", "tokens.characters.weight", _same),
    Row(f"{EMBEDDER}/convolutions.{{k}}.weight", "tokens.convolutions.{k}.weight", _same),
    Row(f"{EMBEDDER}/convolutions.{{k}}.bias", "tokens.convolutions.{k}.bias", _same),
    Row(f"{EMBEDDER}/highways._layers.{{k}}.weight", "tokens.highways.{k}.transform.weight", _same),
    Row(f"{EMBEDDER}/highways._layers.{{k}}.weight", "tokens.highways.{k}.gate.weight", _same),  # negated afterwards
    Row(f"{EMBEDDER}/highways._layers.{{k}}.bias", "tokens.highways.{k}.transform.bias", _same),
    Row(f"{EMBEDDER}/highways._layers.{{k}}.bias", "tokens.highways.{k}.gate.bias", _same),  # negated afterwards
    Row(f"{EMBEDDER}/projection.weight", "tokens.projection.weight", _same),
    Row(f"{EMBEDDER}/projection.bias", "tokens.projection.bias", _same),
    *_lstm_rows("input_linearity.weight", "weight_x"),
    *_lstm_rows("state_linearity.weight", "weight_h"),
    *_lstm_rows("state_linearity.bias", "bias"),
    Row(f"{ENCODER}/{{side}}_layer_{{k}}.state_projection.weight", "lstm.{k}.projection", _same),
)


def read_manylangs(folder: Path, *, allow_nonfinite: bool = False) -> Pretrained:
    kept, source = _read_config(folder)
    stated = revive(_Stated, kept, source=source, error=WeightsError, ignore_unknown=True)
    kinds = [("encoder", stated.encoder.name, "elmo", "LSTM")]
    kinds += [("token_embedder", stated.token_embedder.name, "cnn", "character LSTM")]
    for part, found, expected, known in kinds:
        if found.lower() != expected:
            raise WeightsError(
                f"{source}: {part}.name is {found!r}; expected {expected!r}: "
                f"ELMoForManyLangs models with a plain {known} are not ELMo and cannot be read"
            )
    stored = {f"{name}/{key}": value for name in (EMBEDDER, ENCODER) for key, value in _load(folder / name).items()}
    words, characters = _read_dictionary(folder / "word.dic"), _read_dictionary(folder / "char.dic")
    config = _config(folder, stored, stated, characters)
    shapes = parameter_shapes(config)
    places = lay_out(TABLE, shapes, [{"side": side} for side in config.directions])
    for place in places:
        _check(folder, place, stored, shapes, allow_nonfinite=allow_nonfinite)
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items()}
    for place in places:
        place.fill(tensors, stored.pop(place.key))
    for name, values in tensors.items():
        if ".gate." in name:
            values.neg_()
    codec = CodecSpec(
        "dictionary",
        words=_in_id_order(folder / "word.dic", words, config.tokens.n_words) if config.tokens.word_dim else None,
        characters=_in_id_order(folder / "char.dic", characters, config.tokens.n_characters)
        if config.tokens.char_dim
        else None,
    )
    check_codec(codec, config, str(folder))
    extra = {"manylangs": {"config": kept}}
    return Pretrained(
        config, tensors, codec=codec, origin="manylangs", format="manylangs", source=str(folder), extra=extra
    )


def _read_config(folder: Path) -> tuple[dict[str, Any], str]:
    """The model's configuration, and where it stands.

    config.json holds the training's arguments; `config_path` in it, often a path of the authors, leads to the real one.
    """
    arguments = folder / "config.json"
    stated = read_json(arguments, _Arguments, error=WeightsError, ignore_unknown=True).config_path
    name = re.split(r"[/\\]", stated)[-1]
    for path in (folder / stated, folder / name):
        if stated and path.is_file():
            return read_json(path, dict[str, Any], error=WeightsError), str(path)
    return STANDARD, f"{arguments} (standard configuration)"


def _load(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise WeightsError(f"{path}: no such file; an ELMoForManyLangs model has {EMBEDDER} and {ENCODER}")
    try:
        # weights_only: a pickle can run code, this loader only ever builds tensors.
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged pickles raise nearly anything
        reason = re.split(r"\. |\n", str(error))[0][:200] or type(error).__name__
        raise WeightsError(f"{path}: cannot be read as weights ({reason}); fetch or copy it again") from None
    if not isinstance(state, dict) or not all(isinstance(key, str) and torch.is_tensor(v) for key, v in state.items()):
        raise WeightsError(f"{path}: holds {type(state).__name__}, expected a dictionary of tensors")
    return state


def _config(folder: Path, stored: Mapping[str, Tensor], stated: _Stated, characters: Mapping[str, int]) -> BiLMConfig:
    """Sizes from the tensors; activation, limit and clips from the config."""
    made, rnn = stated.token_embedder, stated.encoder

    def shape(key: str, axes: int) -> tuple[int, ...]:
        if key not in stored:
            return (0,) * axes
        if stored[key].ndim != axes:
            raise WeightsError(f"{folder}/{key} has shape {tuple(stored[key].shape)}, expected {axes} axes")
        return tuple(stored[key].shape)

    def count(pattern: str) -> int:
        found = {int(match[1]) for key in stored if (match := re.fullmatch(pattern, key))}
        return min(len(found), 1000)

    n_words, word_dim = shape(f"{EMBEDDER}/word_emb_layer.embedding.weight", 2)
    n_characters, char_dim = shape(f"{EMBEDDER}/char_emb_layer.embedding.weight", 2)
    kernels = [
        shape(f"{EMBEDDER}/convolutions.{k}.weight", 3)
        for k in range(count(rf"{EMBEDDER}/convolutions\.(\d+)\.weight"))
    ]
    width, cell = shape(f"{ENCODER}/forward_layer_0.state_projection.weight", 2)
    if not width:
        raise WeightsError(
            f"{folder / ENCODER}: 'forward_layer_0.state_projection.weight' is missing; expected an ELMo encoder"
        )
    try:
        return BiLMConfig(
            tokens=TokenEncoderConfig(
                char_dim=char_dim,
                n_characters=n_characters,
                max_characters=made.max_characters_per_token,
                filters=tuple((k, n) for n, _, k in kernels),
                activation=made.activation,
                n_highway=count(rf"{EMBEDDER}/highways\._layers\.(\d+)\.weight"),
                word_dim=word_dim,
                n_words=n_words,
                projection_dim=width,
                pad_id=characters.get("<pad>") if char_dim else None,
            ),
            lstm=LstmConfig(
                cell_dim=cell,
                projection_dim=width,
                cell_clip=rnn.cell_clip or None,
                proj_clip=rnn.proj_clip or None,
                forget_bias=0.0,
            ),
            n_layers=max(1, count(rf"{ENCODER}/forward_layer_(\d+)\.state_projection\.weight")),
        )
    except ConfigError as error:
        raise WeightsError(f"{folder}: {error}") from None


def _check(
    folder: Path,
    place: Place,
    stored: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    allow_nonfinite: bool,
) -> None:
    name, _, key = place.key.partition("/")
    where, expected = f"{folder / name}: '{key}'", place.shape(shapes)
    if place.key not in stored:
        raise WeightsError(f"{where} is missing, expected a tensor of shape {expected}")
    values = stored[place.key]
    if not values.is_floating_point():
        raise WeightsError(f"{where} has type {values.dtype}, expected float32")
    if tuple(values.shape) != expected:
        raise WeightsError(
            f"{where} has shape {tuple(values.shape)}, expected {expected}; {EMBEDDER} and {ENCODER} seem to belong to "
            "different models"
        )
    if not allow_nonfinite:
        check_numbers(values, where)


def _read_dictionary(path: Path) -> dict[str, int]:
    """`symbol<TAB>id` lines. White space around a line does not count, so only an id means U+3000."""
    if not path.is_file():
        return {}
    symbols: dict[str, int] = {}
    for number, line in enumerate(read_words(path), start=1):
        fields = line.strip().split("\t")
        symbol, stated = (IDEOGRAPHIC_SPACE, fields[0]) if len(fields) == 1 else (fields[0], fields[-1])
        if fields == [""]:
            continue
        if len(fields) > 2 or not stated.isdecimal():
            raise WeightsError(f"{path}: line {number} is {line[:60]!r}, expected a symbol, a tab and its number")
        symbols[symbol] = int(stated)
    return symbols


def _in_id_order(path: Path, symbols: Mapping[str, int], size: int) -> tuple[str, ...]:
    if not symbols:
        raise WeightsError(f"{path}: no such file or empty, but the model has {size} of its symbols")
    ordered = [f"<unused {k}>" for k in range(size)]
    for symbol, k in symbols.items():
        if k >= size:
            raise WeightsError(f"{path}: {symbol!r} has number {k}, but the model has {size} symbols")
        ordered[k] = symbol
    return tuple(ordered)
