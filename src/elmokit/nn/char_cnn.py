"""The token encoder: a word's characters to one context-free vector (Peters et al. 2018, section 3.1; Kim et al. 2015).

One encoder serves all published models: official (characters), ELMoForManyLangs (characters joined with a word
vector) and word-level (a word vector alone). Conventions are those of the official files; other files are turned into
them on loading.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from elmokit.config import Count, Pairs, Range, Size, SizeOrNone, check
from elmokit.errors import ConfigError
from elmokit.kernels import Filter, char_cnn

OFFICIAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


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


class Highway(nn.Module):
    """y = g * relu(x W_t + b_t) + (1 - g) * x, g = sigmoid(x W_g + b_g). The files call the gate 'carry'."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class TokenEncoder(nn.Module):
    """Rows of word types (U, W) to vectors (U, projection_dim). Columns: [word id] if words, then characters if any."""

    def __init__(self, config: TokenEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.n_words, config.word_dim) if config.word_dim else None
        self.characters = nn.Embedding(config.n_characters, config.char_dim) if config.char_dim else None
        used = config.filters if config.char_dim else ()
        self.convolutions = nn.ModuleList(nn.Conv1d(config.char_dim, n, width) for width, n in used)
        self.highways = nn.ModuleList(Highway(config.n_filters) for _ in range(config.n_highway if used else 0))
        self.projection = nn.Linear(config.n_features, config.projection_dim) if config.project else None

    def forward(self, types: Tensor) -> Tensor:
        parts = []
        if self.words is not None:
            parts.append(self.words(types[:, 0]))  # (U, word_dim)
        if self.characters is not None:
            filters = [Filter(conv.weight, conv.bias) for conv in self.convolutions]  # type: ignore[arg-type]
            x = char_cnn(
                types[:, -self.config.max_characters :],
                self.characters.weight,
                filters,
                self.config.activation,
                pad=self.config.pad_id,
            )  # (U, n_filters)
            for highway in self.highways:
                x = highway(x)
            parts.append(x)
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)  # (U, n_features)
        return features if self.projection is None else self.projection(features)  # (U, P)
