"""The official format: equal to the reference, then round trips, bit for bit."""

import json
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_files import (
    OPTIONS,
    WORDS,
    assert_same_arrays,
    changed,
    random_weights,
    read_arrays,
    write_arrays,
    write_model,
)

import reference as ref
from elmokit.batch import build_batch
from elmokit.errors import WeightsError
from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.text import Sentence
from elmokit.weights import Pretrained, load_pretrained, save_pretrained
from elmokit.weights.card import count_parameters
from elmokit.weights.hdf5 import read_official
from elmokit.weights.pretrained import outline


@st.composite
def option_shapes(draw: st.DrawFn) -> dict[str, Any]:
    """options.json as the older tools write it, with every field that may be missing sometimes missing."""
    width = draw(st.integers(1, 5))
    lstm: dict[str, Any] = {"dim": width + draw(st.integers(0, 3)), "projection_dim": width}
    filters = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3))
    cnn: dict[str, Any] = {
        "activation": draw(st.sampled_from(["relu", "tanh"])),
        "embedding": {"dim": draw(st.integers(1, 4))},
        "filters": [list(pair) for pair in filters],
    }
    options = {"lstm": lstm, "char_cnn": cnn}
    may_be_missing = [
        (lstm, "n_layers", st.integers(1, 3)),
        (lstm, "cell_clip", st.sampled_from([None, 0.5, 3])),
        (lstm, "proj_clip", st.sampled_from([None, 0.25, 3])),
        (lstm, "use_skip_connections", st.booleans()),
        (cnn, "max_characters_per_token", st.integers(4, 12)),
        (cnn, "n_characters", st.sampled_from([261, 262])),
        (cnn, "n_highway", st.integers(0, 2)),
        (options, "bidirectional", st.booleans()),
        (options, "n_train_tokens", st.integers(1, 10**12)),
        (options, "nobody reads this", st.just({"a": [1, None, "ö"]})),
    ]
    for section, name, values in may_be_missing:
        if draw(st.booleans()):
            section[name] = draw(values)
    return options


def layers_of(model: Pretrained, tokens: list[str]) -> np.ndarray:
    """(L+1, T, D) with boundaries, from zero state, in float64."""
    codec = model.codec.build(model.config.tokens.max_characters)
    batch = build_batch([Sentence(tuple(tokens))], codec)
    network = model.build(dtype=torch.float64)
    with torch.inference_mode():
        stack, _ = network(torch.from_numpy(batch.types).long(), torch.from_numpy(batch.index), batch.lengths)
    return stack.values[:, 0].numpy()


@given(option_shapes())
@settings(max_examples=25)
def test_round_trips_are_bit_exact(options):
    weights = random_weights(options)
    with tempfile.TemporaryDirectory() as name:
        folder = write_model(Path(name) / "model", options, weights)
        model = load_pretrained(folder)
        again = save_pretrained(model, Path(name) / "again", format="official")
        own = save_pretrained(model, Path(name) / "own")
        back = save_pretrained(load_pretrained(own), Path(name) / "back", format="official")
        for saved in (again, back):
            assert_same_arrays(read_arrays(saved / "weights.hdf5"), weights)
            assert json.loads((saved / "options.json").read_text()) == options


@given(option_shapes())
@settings(max_examples=15)
def test_equals_the_reference(options):
    tokens = ["cat", "naïveté", "", "<S>"]
    weights = random_weights(options)
    with tempfile.TemporaryDirectory() as name:
        model = load_pretrained(write_model(Path(name), options, weights))
        expected, _ = ref.embed(weights, options, tokens)
        np.testing.assert_allclose(layers_of(model, tokens), expected, rtol=0, atol=1e-9)


def test_published_fixture_round_trip(shared, tmp_path):
    folder = shared / "fixtures" / "elmo-skip"  # five .hdf5 files lie there, one of them a model
    model = load_pretrained(folder)
    saved = save_pretrained(model, tmp_path / "saved", format="official")
    assert_same_arrays(read_arrays(saved / "weights.hdf5"), read_arrays(folder / "lm_weights.hdf5"))
    assert json.loads((saved / "options.json").read_text()) == json.loads((folder / "options.json").read_text())
    assert model.config.lstm.forget_bias == 1.0
    assert model.tensors["tokens.characters.weight"][0].eq(0).all()


@pytest.mark.parametrize(
    ("cell", "width", "highways", "total"),
    [(1024, 128, 1, 13_593_296), (2048, 256, 1, 28_027_728), (4096, 512, 2, 93_600_848)],
)
def test_official_sizes_have_the_published_number_of_parameters(cell, width, highways, total):
    config = BiLMConfig(TokenEncoderConfig(n_highway=highways, projection_dim=width), LstmConfig(cell, width))
    assert sum(count_parameters(Pretrained.of(outline(config))).values()) == total


def test_one_layer_files_keep_either_naming(tmp_path):
    options = changed("lstm.n_layers", 1)
    single = random_weights(options)
    stacked = {key.replace("/RNN/LSTMCell", "/RNN/MultiRNNCell/Cell0/LSTMCell"): a for key, a in single.items()}
    assert single.keys() != stacked.keys()
    for name, weights in (("single", single), ("stacked", stacked)):
        model = load_pretrained(write_model(tmp_path / name, options, weights))
        saved = save_pretrained(model, tmp_path / f"{name} again", format="official")
        assert_same_arrays(read_arrays(saved / "weights.hdf5"), weights)


def test_projections_that_need_not_be_there_are_kept(tmp_path):
    """A square projection is left out by bilm-tf, but other tools may write it."""
    options = changed("lstm.dim", 4) | {"char_cnn": OPTIONS["char_cnn"] | {"filters": [[1, 1], [2, 3]]}}
    without = random_weights(options)
    assert not any("W_P_0" in key or "CNN_proj" in key for key in without)
    rng = np.random.default_rng(1)
    square = {
        f"RNN_{d}/RNN/MultiRNNCell/Cell{k}/LSTMCell/W_P_0": ref.random_matrix(rng, 4, 4) for d in (0, 1) for k in (0, 1)
    }
    extra = {"CNN_proj/W_proj": ref.random_matrix(rng, 4, 4), "CNN_proj/b_proj": ref.random_bias(rng, 4)}
    for name, weights in (("without", without), ("with", without | square | extra)):
        model = load_pretrained(write_model(tmp_path / name, options, weights))
        assert model.config.lstm.project == model.config.tokens.project == (name == "with")
        np.testing.assert_allclose(
            layers_of(model, ["cat"]), ref.embed(weights, options, ["cat"])[0], rtol=0, atol=1e-9
        )
        saved = save_pretrained(model, tmp_path / f"{name} again", format="official")
        assert_same_arrays(read_arrays(saved / "weights.hdf5"), weights)


@pytest.mark.parametrize("direction", [ref.FORWARD, ref.BACKWARD])
def test_one_direction_shows_in_the_file_alone(tmp_path, direction):
    weights = random_weights(directions=[direction])
    model = load_pretrained(write_model(tmp_path / "model", OPTIONS, weights))
    assert model.config.directions == (("forward", "backward")[direction],)
    np.testing.assert_allclose(layers_of(model, ["cat"]), ref.embed(weights, OPTIONS, ["cat"])[0], rtol=0, atol=1e-9)
    saved = save_pretrained(model, tmp_path / "again", format="official")
    assert_same_arrays(read_arrays(saved / "weights.hdf5"), weights)


def test_options_may_ask_for_the_forward_direction_of_two(tmp_path):
    folder = write_model(tmp_path, OPTIONS | {"bidirectional": False}, random_weights())
    assert load_pretrained(folder).config.directions == ("forward",)


@pytest.mark.parametrize("word_dim", [None, 7])
def test_word_level_models(tmp_path, word_dim):
    options = {"lstm": OPTIONS["lstm"], "n_tokens_vocab": len(WORDS)}
    weights = random_weights(options, word_dim=word_dim)
    folder = write_model(tmp_path / "model", options, weights, WORDS)
    model = load_pretrained(folder)
    tokens = ["the", "dog"]
    expected, _ = ref.embed(weights, options, tokens, vocabulary=WORDS)
    np.testing.assert_allclose(layers_of(model, tokens), expected, rtol=0, atol=1e-9)
    again = save_pretrained(
        load_pretrained(save_pretrained(model, tmp_path / "own")), tmp_path / "again", format="official"
    )
    assert_same_arrays(read_arrays(again / "weights.hdf5"), weights)
    assert json.loads((again / "options.json").read_text()) == options
    assert (again / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()


def test_word_level_model_without_its_vocabulary_says_so_when_used(tmp_path):
    options = {"lstm": OPTIONS["lstm"], "n_tokens_vocab": 5}
    model = load_pretrained(write_model(tmp_path, options))
    with pytest.raises(WeightsError, match="needs its vocabulary"):
        model.codec.build(50)


def test_token_file_stands_in_for_the_characters(tmp_path):
    weights = random_weights()
    folder = write_model(tmp_path, OPTIONS, weights, WORDS)
    rows = np.stack([ref.byte_row(word, 10) for word in WORDS])
    vectors = ref.encode_rows(weights, OPTIONS, rows).astype(np.float32)
    tokens = write_arrays(tmp_path / "tokens.hdf5", {"embedding": vectors})
    model = read_official(folder / "lm_weights.hdf5", vocabulary=folder / "vocab.txt", token_file=tokens)
    expected, _ = ref.embed(weights, OPTIONS, ["the", "cat"])
    np.testing.assert_allclose(layers_of(model, ["the", "cat"]), expected, rtol=0, atol=1e-6)
    again = load_pretrained(save_pretrained(model, tmp_path / "again", format="official"))  # now a word-level model
    assert (again.config, again.codec) == (model.config, model.codec)
    np.testing.assert_array_equal(again.tensors["tokens.words.weight"], vectors)


def test_softmax_comes_along_and_can_be_left_out(tmp_path):
    options = OPTIONS | {"n_tokens_vocab": len(WORDS)}
    weights = random_weights(options, softmax=True)
    folder = write_model(tmp_path / "model", options, weights, WORDS)
    model = load_pretrained(folder)
    assert model.softmax is not None
    np.testing.assert_array_equal(model.softmax.weight, weights["softmax/W"])
    np.testing.assert_array_equal(model.softmax.bias, weights["softmax/b"])
    whole = save_pretrained(
        load_pretrained(save_pretrained(model, tmp_path / "own")), tmp_path / "whole", format="official"
    )
    assert_same_arrays(read_arrays(whole / "weights.hdf5"), weights)
    lean = save_pretrained(model, tmp_path / "lean", format="official", softmax=False)
    assert not any(key.startswith("softmax") for key in read_arrays(lean / "weights.hdf5"))
    assert load_pretrained(folder, softmax=False).softmax is None
    assert load_pretrained(tmp_path / "own", softmax=False).softmax is None


@pytest.mark.parametrize("dtype", ["<f2", "<f8", ">f4"])
def test_other_float_types_keep_their_values(tmp_path, dtype):
    weights = {key: array.astype(dtype) for key, array in random_weights().items()}
    saved = save_pretrained(
        load_pretrained(write_model(tmp_path / "m", OPTIONS, weights)), tmp_path / "s", format="official"
    )
    for key, array in read_arrays(saved / "weights.hdf5").items():
        assert array.dtype == np.result_type(dtype, np.float32 if array.ndim == 1 else np.float16)
        np.testing.assert_array_equal(array, weights[key])


@pytest.mark.parametrize("through", ["elmokit", "official"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_added_to_stays_float32_in_16_bit_models(tmp_path, through, dtype):
    """AllenNLP adds the forget bias in the type that it finds."""
    model = load_pretrained(write_model(tmp_path / "m"))
    if through == "elmokit":
        small = load_pretrained(save_pretrained(model, tmp_path / "own", dtype=dtype))
        saved = save_pretrained(small, tmp_path / "s", format="official")
    else:
        small, dtype = model, "float16"
        saved = save_pretrained(model, tmp_path / "s", format="official", dtype=dtype)
    arrays = read_arrays(saved / "weights.hdf5")
    assert {a.dtype.name for a in arrays.values() if a.ndim == 1} == {"float32"}
    assert {a.dtype.name for a in arrays.values() if a.ndim > 1} == {"float16" if dtype == "float16" else "float32"}
    bias = arrays["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/B"]
    exact = small.tensors["lstm.1.bias"][1].double().numpy() + 1
    bias += 1
    np.testing.assert_allclose(bias, exact, rtol=0, atol=2e-7)


def test_compressed_files_are_read(tmp_path):
    folder = write_model(tmp_path)
    weights = random_weights()
    with h5py.File(folder / "lm_weights.hdf5", "w") as file:
        for key, array in weights.items():
            file.create_dataset(key, data=array, compression="gzip", chunks=True)
    np.testing.assert_array_equal(
        load_pretrained(folder).tensors["lstm.0.bias"][1], weights["RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B"]
    )


def test_changed_models_get_options_that_fit(tmp_path):
    """Options kept from the first file are not written where they no longer describe the model."""
    first = load_pretrained(write_model(tmp_path / "first", OPTIONS | {"note": "kept"}))
    second = load_pretrained(write_model(tmp_path / "second", changed("lstm.dim", 8)))
    mixed = Pretrained(second.config, second.tensors, extra=first.extra)
    options = json.loads((save_pretrained(mixed, tmp_path / "mixed", format="official") / "options.json").read_text())
    assert options == changed("lstm.dim", 8) | {"note": "kept"}
    assert load_pretrained(tmp_path / "mixed").config == second.config


def test_own_models_become_official_ones(tmp_path):
    model = load_pretrained(write_model(tmp_path / "model"))
    fresh = Pretrained.of(model.build())
    saved = save_pretrained(fresh, tmp_path / "saved", format="official")
    assert json.loads((saved / "options.json").read_text()) == OPTIONS
    assert_same_arrays(read_arrays(saved / "weights.hdf5"), random_weights())
