"""The token encoder: a word's characters to one context-free vector (Peters et al. 2018, section 3.1; Kim et al. 2015).

One encoder serves all published models: official (characters), ELMoForManyLangs (characters joined with a word
vector) and word-level (a word vector alone). Conventions are those of the official files; other files are turned into
them on loading.
"""

import torch
from torch import Tensor, nn

from elmokit.kernels import Filter, char_cnn, fused_step
from elmokit.shape import OFFICIAL_FILTERS as OFFICIAL_FILTERS
from elmokit.shape import TokenEncoderConfig as TokenEncoderConfig


class Highway(nn.Module):
    """y = g * relu(x W_t + b_t) + (1 - g) * x, g = sigmoid(x W_g + b_g). The files call the gate 'carry'."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and fused_step(x):
            from elmokit.kernels.triton.pointwise import FusedHighway

            transform, gates = self.transform, self.gate
            given = (x, transform.weight, transform.bias, gates.weight, gates.bias)
            y: Tensor = FusedHighway.apply(*given)  # type: ignore[no-untyped-call]
            return y
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
