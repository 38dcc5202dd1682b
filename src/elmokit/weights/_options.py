"""options.json of the official models, to a `BiLMConfig` and back."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from elmokit.chars import N_BYTE_IDS, PAD
from elmokit.config import Clip, Depth, Pairs, Range, Size, revive
from elmokit.errors import ConfigError, WeightsError
from elmokit.nn.bilm import BiLMConfig, Direction
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig


@dataclass(frozen=True, slots=True)
class Contents:
    """What options.json leaves open and only the weights show."""

    directions: tuple[Direction, ...]
    token_projection: bool  # CNN_proj is there
    lstm_projection: bool  # W_P_0 is there
    word_table: tuple[int, int] | None = None  # (V, width) of `embedding`, for a word-level model


@dataclass(frozen=True, slots=True)
class _Lstm:
    dim: Size
    projection_dim: Size
    n_layers: Depth = 1
    cell_clip: Clip = None
    proj_clip: Clip = None
    use_skip_connections: bool | None = None  # missing means none, as in the tool that wrote it; AllenNLP refuses it


@dataclass(frozen=True, slots=True)
class _Embedding:
    dim: Size


@dataclass(frozen=True, slots=True)
class _CharCnn:
    embedding: _Embedding
    filters: Pairs
    activation: Literal["relu", "tanh"]
    n_characters: Literal[261, 262] = 262  # the bytes and five marks, with or without the zero row
    max_characters_per_token: Annotated[int, Range(3, 10_000_000)] = 50  # AllenNLP knows no other than 50
    n_highway: Annotated[int, Range(0, 1000)] | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What of options.json shapes the model; such files hold more."""

    lstm: _Lstm
    char_cnn: _CharCnn | None = None  # None: a word-level model
    bidirectional: bool | None = None

    @classmethod
    def of(cls, values: dict[str, Any], *, source: str) -> "Options":
        return revive(cls, values, source=source, error=WeightsError, ignore_unknown=True)


def read_config(options: Options, contents: Contents, *, source: str) -> BiLMConfig:
    """The network that the options, with what the weights show, describe."""
    lstm = options.lstm
    cell, width = lstm.dim, lstm.projection_dim
    if width > cell:
        raise WeightsError(
            f"{source}: lstm.projection_dim {width} is larger than lstm.dim {cell}; the layers would differ in "
            "width, which cannot be run. Expected projection_dim of at most dim"
        )
    try:
        return BiLMConfig(
            tokens=_read_tokens(options.char_cnn, width, contents),
            lstm=LstmConfig(
                cell_dim=cell,
                projection_dim=width,
                project=width < cell or contents.lstm_projection,
                cell_clip=lstm.cell_clip or None,
                proj_clip=lstm.proj_clip or None,
            ),
            n_layers=lstm.n_layers,
            skip_connections=lstm.use_skip_connections or False,
            directions=contents.directions,
        )
    except ConfigError as error:
        raise WeightsError(f"{source}: {error}") from None


def _read_tokens(cnn: _CharCnn | None, width: int, contents: Contents) -> TokenEncoderConfig:
    if contents.word_table is not None:
        n_words, word_dim = contents.word_table
        project = contents.token_projection or word_dim != width
        return TokenEncoderConfig(
            char_dim=0, n_words=n_words, word_dim=word_dim, projection_dim=width, project=project, pad_id=None
        )
    if cnn is None:
        raise ConfigError("char_cnn is missing; expected an object {...}")
    return TokenEncoderConfig(
        char_dim=cnn.embedding.dim,
        n_characters=N_BYTE_IDS,
        max_characters=cnn.max_characters_per_token,
        filters=cnn.filters,
        activation=cnn.activation,
        n_highway=cnn.n_highway or 0,
        projection_dim=width,
        project=contents.token_projection or sum(n for _, n in cnn.filters) != width,
        pad_id=PAD,
    )


def write_options(config: BiLMConfig, kept: dict[str, Any] | None) -> dict[str, Any]:
    """`kept`, the options the model was read with, come back as they were while they still describe the model."""
    options: dict[str, Any] = copy.deepcopy(kept) if kept else {}
    tokens, lstm = config.tokens, config.lstm
    table = (tokens.n_words, tokens.word_dim) if tokens.word_dim else None
    contents = Contents(config.directions, tokens.project, lstm.project, table)
    if options and _describes(options, contents, config):
        return options
    options["lstm"] = options.get("lstm", {}) | {
        "dim": lstm.cell_dim,
        "projection_dim": lstm.projection_dim,
        "n_layers": config.n_layers,
        "cell_clip": lstm.cell_clip,
        "proj_clip": lstm.proj_clip,
        "use_skip_connections": config.skip_connections,
    }
    if len(config.directions) == 1:
        options["bidirectional"] = False
    else:
        options.pop("bidirectional", None)
    if tokens.word_dim:
        options.pop("char_cnn", None)
        options["n_tokens_vocab"] = tokens.n_words
    else:
        options["char_cnn"] = options.get("char_cnn", {}) | {
            "activation": tokens.activation,
            "embedding": {"dim": tokens.char_dim},
            "filters": [list(pair) for pair in tokens.filters],
            "max_characters_per_token": tokens.max_characters,
            "n_characters": tokens.n_characters,
            "n_highway": tokens.n_highway,
        }
    return options


def _describes(options: dict[str, Any], contents: Contents, config: BiLMConfig) -> bool:
    if (options.get("char_cnn") is None) != (contents.word_table is not None):
        return False
    try:
        return read_config(Options.of(options, source=""), contents, source="") == config
    except WeightsError:  # they are those of a model that has since been changed
        return False


def find_options(beside: Path) -> Path:
    """The options that belong to a weights file: `X_options.json` for `X_weights.hdf5`, else options.json."""
    stem = beside.name.removesuffix(beside.suffix)
    named = beside.with_name(f"{stem.removesuffix('_weights')}_options.json")
    candidates = [named, beside.with_name("options.json")]
    for path in candidates:
        if path.is_file():
            return path
    names = " or ".join(path.name for path in candidates)
    raise WeightsError(f"{beside}: no {names} beside it; give the options file of this model")
