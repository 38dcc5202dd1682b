"""Every option of the biLM equals the float64 reference."""

from typing import Any

import numpy as np
import pytest
import torch

import models
from elmokit.encoders import Elmo
from elmokit.errors import ConfigError
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig

SENTENCES = [["The", "cat", "sat", "on", "the", "mat", "."], ["Ω" * 40], [], ["a", "", "<S>"]]

OPTIONS: dict[str, dict[str, Any]] = {
    "one layer": {"lstm": {"n_layers": 1}},
    "three layers": {"lstm": {"n_layers": 3}},
    "no skip connections": {"lstm": {"use_skip_connections": False}},
    "tanh": {"char_cnn": {"activation": "tanh"}},
    "no projection after the cell": {"lstm": {"dim": 6, "projection_dim": 6}},
    "no projection of tokens": {"char_cnn": {"filters": [[1, 2], [3, 4]]}},
    "no clips": {"lstm": {"cell_clip": None, "proj_clip": None}},
    "tight clips": {"lstm": {"cell_clip": 0.3, "proj_clip": 0.1}},
    "no highway": {"char_cnn": {"n_highway": 0}},
    "wide characters": {"char_cnn": {"embedding": {"dim": 9}}},
    "short words": {"char_cnn": {"max_characters_per_token": 8}},
    "long words": {"char_cnn": {"max_characters_per_token": 90}},
}


def assert_equal(tiny: models.Tiny) -> None:
    for dtype, tolerance in (("float64", 1e-11), ("float32", 1e-5)):
        elmo = Elmo(tiny.pretrained, device="cpu", dtype=dtype)
        for got, tokens in zip(elmo.encode_layers(SENTENCES), SENTENCES, strict=True):
            want = tiny.embed(tokens)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, atol=tolerance)


@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS.keys())
def test_options_equal_the_reference(changes: dict[str, Any]) -> None:
    assert_equal(models.tiny(models.tiny_options(**changes)))


@pytest.mark.parametrize("directions", [(0,), (1,)])
def test_one_direction(directions: tuple[int, ...]) -> None:
    tiny = models.tiny(directions=directions)
    assert tiny.pretrained.config.width == 6
    assert_equal(tiny)


def test_word_level_input() -> None:
    tiny = models.tiny_words()
    elmo = Elmo(tiny.pretrained, device="cpu", dtype="float64")
    tokens = ["the", "cat", "sat", "unheard"]
    np.testing.assert_allclose(elmo.encode_layers([tokens])[0], tiny.embed(tokens), atol=1e-11)


def test_tight_clips_do_clip() -> None:
    free = Elmo(models.tiny(models.tiny_options(**OPTIONS["no clips"])).pretrained, device="cpu")
    tight = Elmo(models.tiny(models.tiny_options(**OPTIONS["tight clips"])).pretrained, device="cpu")
    assert np.abs(free.encode_layers(SENTENCES)[0][1]).max() > 0.1
    assert np.abs(tight.encode_layers(SENTENCES)[0][1]).max() <= 0.1 + 1e-6


def test_initialise_is_repeatable_and_on_the_published_scales() -> None:
    config = BiLMConfig(
        TokenEncoderConfig(filters=((1, 8), (3, 24)), projection_dim=16, n_highway=1), LstmConfig(32, 16), n_layers=1
    )
    models_made = []
    for seed in (1, 1, 2):
        model = BiLM(config)
        initialise(model, seed=seed)
        models_made.append(model)
    first, same, other = (dict(m.named_parameters()) for m in models_made)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["lstm.0.weight_x"], other["lstm.0.weight_x"])
    assert first["tokens.characters.weight"].abs().max() <= 1
    assert not first["tokens.characters.weight"][0].any()
    assert first["tokens.convolutions.0.weight"].abs().max() <= 0.05
    assert (first["tokens.highways.0.gate.bias"] == -2).all()


def test_impossible_configs_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_layers is 0; expected a whole number from 1 to 1,000"):
        BiLMConfig(n_layers=0)
    with pytest.raises(ConfigError, match="tokens of 512 do not fit an LSTM of 128"):
        BiLMConfig(lstm=LstmConfig(1024, 128))
    with pytest.raises(ConfigError, match="directions"):
        BiLMConfig(directions=("backward", "forward"))
    with pytest.raises(ConfigError, match='activation is "gelu"; expected one of relu, tanh'):
        TokenEncoderConfig(activation="gelu")  # type: ignore[arg-type]
