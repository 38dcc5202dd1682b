"""The NumPy reference against numbers made by the older tools themselves: this is what makes it a reference."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import reference as ref


@pytest.fixture(scope="module")
def official(shared: Path) -> tuple[dict[str, np.ndarray], dict]:
    folder = shared / "fixtures" / "elmo-skip"
    weights: dict[str, np.ndarray] = {}
    with h5py.File(folder / "lm_weights.hdf5") as file:
        file.visititems(
            lambda name, node: weights.update({name: node[...]}) if isinstance(node, h5py.Dataset) else None
        )
    return weights, json.loads((folder / "options.json").read_text())


@pytest.mark.parametrize("row", [0, 1, 2])
def test_stored_vectors(shared, official, row):
    weights, options = official
    folder = shared / "fixtures" / "elmo-skip"
    sentences = json.loads((folder / "sentences.json").read_text())[row]
    state = None
    with h5py.File(folder / f"lm_embeddings_{row}.hdf5") as stored:
        assert len(sentences) == len(stored) == 10
        for k, sentence in enumerate(sentences):
            layers, state = ref.embed(weights, options, sentence.split(), state)
            inner = ref.drop_boundaries(layers)
            assert inner.shape == (3, len(sentence.split()), 32)
            forward, backward = stored[str(k)][...]
            np.testing.assert_allclose(inner[-1], np.concatenate([forward, backward], axis=-1), rtol=0, atol=2e-6)


def test_stored_token_vectors(shared, official):
    folder = shared / "fixtures" / "elmo-skip"
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as stored:
        expected = stored["embedding"][...]
    assert len(words) == len(expected)
    rows = np.stack([ref.byte_row(word) for word in words])
    np.testing.assert_allclose(ref.encode_rows(*official, rows), expected, rtol=0, atol=2e-6)


def test_state_matters(official):
    weights, options = official
    first, state = ref.embed(weights, options, ["a", "b"])
    second, _ = ref.embed(weights, options, ["a", "b"], state)
    np.testing.assert_array_equal(first[0], second[0])
    assert np.abs(first[1:] - second[1:]).max() > 1e-3


def options_with(**lstm) -> dict:
    return {
        "lstm": {"dim": 8, "projection_dim": 4, "n_layers": 2, "use_skip_connections": True, **lstm},
        "char_cnn": {"activation": "tanh", "embedding": {"dim": 3}, "filters": [[1, 2], [3, 3]], "n_highway": 1},
    }


VARIANTS = {
    "clips": options_with(cell_clip=0.2, proj_clip=0.1),
    "no clips": options_with(),
    "no skip": options_with(use_skip_connections=False),
    "one layer": options_with(n_layers=1),
    "three layers": options_with(n_layers=3),
    "no lstm projection": options_with(dim=4),
    "no token projection": options_with(projection_dim=5),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_random_weights_fit_their_options(name):
    options = VARIANTS[name]
    lstm = options["lstm"]
    weights = ref.random_official(np.random.default_rng(0), options)
    layers, state = ref.embed(weights, options, ["naïve", "x" * 60, ""])
    assert layers.shape == (lstm["n_layers"] + 1, 5, 2 * lstm["projection_dim"])
    assert ("CNN_proj/W_proj" in weights) == (name != "no token projection")
    for per_layer in state.values():
        for c, h in per_layer:
            assert np.abs(c).max() <= lstm.get("cell_clip", np.inf)
            assert np.abs(h).max() <= lstm.get("proj_clip", np.inf)
    if name == "clips":  # the clips bite, so a package that forgets one cannot agree
        assert any(np.abs(h).max() == 0.1 for per_layer in state.values() for _, h in per_layer)


@pytest.mark.parametrize("word_dim", [None, 6])
def test_word_level_input(word_dim):
    options = {"lstm": {"dim": 8, "projection_dim": 4}, "n_tokens_vocab": 4, "bidirectional": False}
    weights = ref.random_official(np.random.default_rng(0), options, word_dim=word_dim)
    layers, _ = ref.embed(weights, options, ["cat", "dog"], vocabulary=["<S>", "</S>", "<UNK>", "cat"])
    assert layers.shape == (2, 4, 4)
    unknown, _ = ref.embed(weights, options, ["cat", "<UNK>"], vocabulary=["<S>", "</S>", "<UNK>", "cat"])
    np.testing.assert_array_equal(layers, unknown)


def test_byte_rows():
    assert ref.byte_row("é", 6).tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261]
    assert ref.byte_row("<S>", 5).tolist() == [259, 257, 260, 261, 261]
    assert ref.byte_row("<S>", 5, literal_boundaries=False).tolist() == [259, 61, 84, 63, 260]
    assert ref.byte_row("aéa", 4).tolist() == [259, 98, 0xC3 + 1, 260]  # the cut splits a character
    assert ref.byte_row("a\ud800", 4).tolist() == [259, 98, 260, 261]
    assert ref.sentence_rows([], 5)[1].tolist() == [259, 258, 260, 261, 261]


MANYLANGS = Path(__file__).parent / "data" / "manylangs"


def read_dictionary(path: Path) -> dict[str, int] | None:
    if not path.exists():
        return None
    pairs = [line.rpartition("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
    return {symbol or "\u3000": int(i) for symbol, _, i in pairs}


@pytest.mark.parametrize("name", ["both", "characters", "words"])
def test_manylangs_vectors(name):
    folder = MANYLANGS / name
    embedder, encoder = (
        {key: value.numpy() for key, value in torch.load(folder / file, weights_only=True).items()}
        for file in ("token_embedder.pkl", "encoder.pkl")
    )
    config = json.loads((folder / "tiny.json").read_text())
    words, characters = read_dictionary(folder / "word.dic"), read_dictionary(folder / "char.dic")
    sentences = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
    stacks = [ref.manylangs(embedder, encoder, config, s, words=words, characters=characters) for s in sentences]
    layers = np.concatenate([ref.drop_boundaries(stack) for stack in stacks], axis=1)  # (L+1, all tokens, D)
    codes = {-2: layers, -1: layers.mean(axis=0), **dict(enumerate(layers))}
    with np.load(MANYLANGS / "expected.npz") as expected:
        assert {key for key in expected if key.startswith(name)} == {f"{name}/{code}" for code in codes}
        for code, values in codes.items():
            np.testing.assert_allclose(values, expected[f"{name}/{code}"], rtol=0, atol=1e-5)


def test_mixes():
    rng = np.random.default_rng(0)
    stacks = [rng.normal(2.0, 3.0, (3, t, 4)) for t in (4, 7)]
    mixed = ref.mix(stacks, [0.0, 0.0, 0.0], 2.0)
    np.testing.assert_allclose(mixed[1], 2.0 * ref.average(stacks)[1])
    np.testing.assert_allclose(ref.mix(stacks, [0.0, 0.0, 800.0])[0], ref.top(stacks)[0])
    for variant, counted in (("allennlp", lambda s: s), ("bilm-tf", ref.drop_boundaries)):
        normed = np.concatenate([counted(s) for s in ref.layer_norm(stacks, variant)], axis=1)  # (L, N, D)
        np.testing.assert_allclose(normed.mean(axis=(1, 2)), 0.0, atol=1e-12)
        np.testing.assert_allclose(normed.var(axis=(1, 2)), 1.0)
