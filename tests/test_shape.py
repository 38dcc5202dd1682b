"""The shapes of parameters, written out from the configuration, are those of the network."""

import pytest

from elmokit.shape import BiLMConfig, LstmConfig, TokenEncoderConfig, parameter_shapes
from elmokit.weights.pretrained import outline

SMALL = LstmConfig(cell_dim=6, projection_dim=4)
CHARACTERS = TokenEncoderConfig(char_dim=3, n_characters=262, filters=((1, 2), (3, 5)), n_highway=2, projection_dim=4)
WORDS = TokenEncoderConfig(char_dim=0, n_characters=0, filters=(), word_dim=5, n_words=9, projection_dim=4)
BOTH = TokenEncoderConfig(
    char_dim=3, filters=((2, 4),), activation="tanh", n_highway=1, word_dim=5, n_words=9, projection_dim=4
)
PLAIN = TokenEncoderConfig(char_dim=3, filters=((2, 4),), n_highway=0, projection_dim=4, project=False)


@pytest.mark.parametrize(
    "config",
    [
        BiLMConfig(tokens=CHARACTERS, lstm=SMALL),
        BiLMConfig(tokens=WORDS, lstm=SMALL, n_layers=1, directions=("backward",)),
        BiLMConfig(tokens=BOTH, lstm=SMALL, n_layers=3, skip_connections=False),
        BiLMConfig(tokens=PLAIN, lstm=LstmConfig(cell_dim=4, projection_dim=4, project=False)),
    ],
    ids=["characters", "words", "both", "unprojected"],
)
def test_shapes_of_parameters(config: BiLMConfig) -> None:
    found = {name: tuple(parameter.shape) for name, parameter in outline(config).named_parameters()}
    assert parameter_shapes(config) == found
