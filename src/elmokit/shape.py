"""The shape of a model: configurations of its parts, and the shape of each parameter. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Literal

from elmokit.config import Clip, Count, Depth, Pairs, Range, Size, SizeOrNone, check
from elmokit.errors import ConfigError

Direction = Literal["forward", "backward"]

OFFICIAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True, slots=True)
class LstmRules:
    """What the numbers mean: clips (None: none) and the constant added to the forget gate's pre-activation."""

    cell_clip: float | None = 3.0
    proj_clip: float | None = 3.0
    forget_bias: float = 1.0


@dataclass(frozen=True, slots=True)
class LstmConfig:
    """Every layer is alike: `projection_dim` in, `projection_dim` out, `cell_dim` inside."""

    cell_dim: Size = 4096
    projection_dim: Size = 512
    project: bool = True  # False: the output is the cell's own, unclipped, and cell_dim == projection_dim
    cell_clip: Clip = 3.0
    proj_clip: Clip = 3.0
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        check(self)
        if not self.project and self.cell_dim != self.projection_dim:
            raise ConfigError(f"without projection, cell_dim {self.cell_dim} must equal {self.projection_dim}")

    @property
    def rules(self) -> LstmRules:
        return LstmRules(self.cell_clip or None, self.proj_clip or None, self.forget_bias)


@dataclass(frozen=True, slots=True)
class TokenEncoderConfig:
    """Characters, words, or both. A zero `char_dim` or `word_dim` switches that input off."""

    char_dim: SizeOrNone = 16
    n_characters: SizeOrNone = 262  # ids a character row may hold, 0 (never used, a zero row) included
    max_characters: Size = 50
    filters: Pairs = OFFICIAL_FILTERS  # (width, how many)
    activation: Literal["relu", "tanh"] = "relu"
    n_highway: Annotated[int, Range(0, 1000)] = 2
    word_dim: SizeOrNone = 0
    n_words: Annotated[int, Range(0, 1_000_000_000)] = 0
    projection_dim: Size = 512  # width of the word vector that comes out
    project: bool = True  # False: the features already have that width and go out as they are
    pad_id: Count | None = 261  # the character that fills a row up; None where a row has no such character

    def __post_init__(self) -> None:
        check(self)
        if not self.char_dim and not self.word_dim:
            raise ConfigError("a token encoder needs characters (char_dim) or words (word_dim); both are 0")
        if len(self.filters) > 1000:
            raise ConfigError(f"{len(self.filters)} filters; expected at most 1,000")
        if self.char_dim and (not self.filters or max(w for w, _ in self.filters) > self.max_characters):
            raise ConfigError(f"filters {self.filters} do not fit words of {self.max_characters} characters")
        if not self.project and self.n_features != self.projection_dim:
            raise ConfigError(f"{self.n_features} features cannot go out unprojected as {self.projection_dim}")

    @property
    def n_filters(self) -> int:
        return sum(n for _, n in self.filters) if self.char_dim else 0

    @property
    def n_features(self) -> int:
        """Width before the projection."""
        return self.word_dim + self.n_filters


@dataclass(frozen=True, slots=True)
class BiLMConfig:
    """The shape of a model; the weights fit it exactly."""

    tokens: TokenEncoderConfig = field(default_factory=TokenEncoderConfig)
    lstm: LstmConfig = field(default_factory=LstmConfig)
    n_layers: Depth = 2
    skip_connections: bool = True
    directions: tuple[Direction, ...] = ("forward", "backward")

    def __post_init__(self) -> None:
        check(self)
        if self.directions not in (("forward", "backward"), ("forward",), ("backward",)):
            raise ConfigError(
                f"directions {self.directions} not known; expected forward, backward or both, in that order"
            )
        if self.tokens.projection_dim != self.lstm.projection_dim:
            raise ConfigError(
                f"tokens of {self.tokens.projection_dim} do not fit an LSTM of {self.lstm.projection_dim}"
            )

    @property
    def width(self) -> int:
        """The size of a layer's vector: all directions side by side."""
        return self.lstm.projection_dim * len(self.directions)

    @property
    def depth(self) -> int:
        """Layers that come out, the token layer included."""
        return self.n_layers + 1

    @property
    def layer_names(self) -> tuple[str, ...]:
        return ("token", *(f"lstm{k}" for k in range(1, self.depth)))


@lru_cache(maxsize=8)
def parameter_shapes(config: BiLMConfig) -> Mapping[str, tuple[int, ...]]:
    """The shape of each parameter that a model of this config has, by its name in `BiLM`."""
    tokens, lstm, R = config.tokens, config.lstm, len(config.directions)
    F, H, P = tokens.n_filters, lstm.cell_dim, lstm.projection_dim
    shapes: dict[str, tuple[int, ...]] = {}
    if tokens.word_dim:
        shapes["tokens.words.weight"] = (tokens.n_words, tokens.word_dim)
    if tokens.char_dim:
        shapes["tokens.characters.weight"] = (tokens.n_characters, tokens.char_dim)
        for k, (width, n) in enumerate(tokens.filters):
            shapes[f"tokens.convolutions.{k}.weight"] = (n, tokens.char_dim, width)
            shapes[f"tokens.convolutions.{k}.bias"] = (n,)
        for k in range(tokens.n_highway):
            for part in ("transform", "gate"):
                shapes[f"tokens.highways.{k}.{part}.weight"] = (F, F)
                shapes[f"tokens.highways.{k}.{part}.bias"] = (F,)
    if tokens.project:
        shapes["tokens.projection.weight"] = (tokens.projection_dim, tokens.n_features)
        shapes["tokens.projection.bias"] = (tokens.projection_dim,)
    for k in range(config.n_layers):
        shapes[f"lstm.{k}.weight_x"] = shapes[f"lstm.{k}.weight_h"] = (R, 4 * H, P)
        shapes[f"lstm.{k}.bias"] = (R, 4 * H)
        if lstm.project:
            shapes[f"lstm.{k}.projection"] = (R, P, H)
    return shapes
