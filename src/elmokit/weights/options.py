"""options.json of the official models, to a `BiLMConfig` and back."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.chars import N_BYTE_IDS, PAD
from elmokit.errors import ConfigError, WeightsError
from elmokit.nn.bilm import BiLMConfig, Direction
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights.fields import MANY, Section

STORED_CHARACTERS = N_BYTE_IDS - 1  # a file leaves the zero row out
DEFAULT_LIMIT = 50  # AllenNLP knows no other


@dataclass(frozen=True, slots=True)
class Contents:
    """What options.json leaves open and only the weights show."""

    directions: tuple[Direction, ...]
    token_projection: bool  # CNN_proj is there
    lstm_projection: bool  # W_P_0 is there
    word_table: tuple[int, int] | None = None  # (V, width) of `embedding`, for a word-level model


def read_config(options: Section, contents: Contents) -> BiLMConfig:
    """A missing `use_skip_connections` means none, as in the tool that wrote such files (AllenNLP refuses them)."""
    lstm = options.section("lstm")
    cell, width = lstm.integer("dim", low=1), lstm.integer("projection_dim", low=1)
    if width > cell:
        raise WeightsError(
            f"{options.file}: lstm.projection_dim {width} is larger than lstm.dim {cell}; the layers would differ in "
            "width, which cannot be run. Expected projection_dim of at most dim"
        )
    skip = False if lstm.values.get("use_skip_connections") is None else lstm.boolean("use_skip_connections")
    try:
        return BiLMConfig(
            tokens=_read_tokens(options, width, contents),
            lstm=LstmConfig(
                cell_dim=cell,
                projection_dim=width,
                project=width < cell or contents.lstm_projection,
                cell_clip=lstm.limit("cell_clip"),
                proj_clip=lstm.limit("proj_clip"),
            ),
            n_layers=lstm.integer("n_layers", default=1, low=1, high=MANY),
            skip_connections=skip,
            directions=contents.directions,
        )
    except ConfigError as error:
        raise WeightsError(f"{options.file}: {error}") from None


def _read_tokens(options: Section, width: int, contents: Contents) -> TokenEncoderConfig:
    if contents.word_table is not None:
        n_words, word_dim = contents.word_table
        project = contents.token_projection or word_dim != width
        return TokenEncoderConfig(
            char_dim=0, n_words=n_words, word_dim=word_dim, projection_dim=width, project=project, pad_id=None
        )
    cnn = options.section("char_cnn")
    stated = cnn.integer("n_characters", default=N_BYTE_IDS)
    if stated not in (STORED_CHARACTERS, N_BYTE_IDS):
        raise cnn.wrong("n_characters", f"{STORED_CHARACTERS} or {N_BYTE_IDS}: the bytes and five marks")
    filters = cnn.filters("filters")
    if cnn.text("activation") not in ("relu", "tanh"):
        raise cnn.wrong("activation", "'relu' or 'tanh'")
    return TokenEncoderConfig(
        char_dim=cnn.section("embedding").integer("dim", low=1),
        n_characters=N_BYTE_IDS,
        max_characters=cnn.integer("max_characters_per_token", default=DEFAULT_LIMIT, low=3),
        filters=filters,
        activation="relu" if cnn.text("activation") == "relu" else "tanh",
        n_highway=0 if cnn.values.get("n_highway") is None else cnn.integer("n_highway", high=MANY),
        projection_dim=width,
        project=contents.token_projection or sum(n for _, n in filters) != width,
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
        return read_config(Section(options, file="options.json"), contents) == config
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
