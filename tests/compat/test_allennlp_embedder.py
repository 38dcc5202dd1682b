"""`ElmoEmbedder`: AllenNLP's numbers, shapes and corner cases."""

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from official_files import Files, write_official

import models
from elmokit.compat.allennlp import ConfigurationError, ElmoEmbedder, batch_to_ids
from elmokit.encoders import Elmo
from elmokit.errors import InputError, WeightsError

A, B, C = ["The", "cat", "sat", "on", "the", "mat", "."], ["Hi"], ["naïve", "x" * 60, "<S>", ""]


@pytest.fixture
def embedder(files: Files) -> ElmoEmbedder:
    return ElmoEmbedder(files.options, files.weights)


def test_stored_vectors_are_reproduced(shared: Path) -> None:
    folder = shared / "fixtures" / "elmo-skip"
    embedder = ElmoEmbedder(str(folder / "options.json"), str(folder / "lm_weights.hdf5"))
    rows = json.loads((folder / "sentences.json").read_text())
    stored = [h5py.File(folder / f"lm_embeddings_{r}.hdf5") for r in range(3)]
    for k in range(10):
        for r, layers in enumerate(embedder.embed_batch([row[k].split() for row in rows])):
            both = np.concatenate(list(stored[r][str(k)][...]), axis=-1)  # (T, 32), forward and backward
            assert layers.shape == (3, *both.shape)
            np.testing.assert_allclose(layers[-1], both, rtol=0, atol=2e-6)
    for file in stored:
        file.close()


def test_stored_token_vectors_are_reproduced(shared: Path) -> None:
    folder = shared / "fixtures" / "elmo-skip"
    embedder = ElmoEmbedder(str(folder / "options.json"), str(folder / "lm_weights.hdf5"))
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        stored = file["embedding"][...]
    token_layer = embedder.embed_sentence(words)[0]
    np.testing.assert_allclose(token_layer, np.concatenate([stored, stored], axis=1), rtol=0, atol=2e-6)


def test_state_is_carried_by_row_over_growing_shrinking_and_empty_rows(files: Files, embedder: ElmoEmbedder) -> None:
    batches = [[A], [B, C, A], [C], [A, [], B], [[]], [A, A, A]]
    expected = files.run([batch for batch in batches if batch != [[]]])
    for batch in batches:
        got = embedder.embed_batch(batch)
        if batch == [[]]:  # not run at all: the state stays as it was
            assert [layers.shape for layers in got] == [(3, 0, 12)]
            continue
        for layers, wanted in zip(got, expected.pop(0), strict=True):
            assert layers.dtype == np.float32
            assert layers.flags.writeable
            np.testing.assert_allclose(layers, wanted, rtol=0, atol=1e-5)


def test_reset_and_the_stateless_switch(files: Files, embedder: ElmoEmbedder) -> None:
    first, second = embedder.embed_sentence(A), embedder.embed_sentence(A)
    np.testing.assert_array_equal(first[0], second[0])
    assert np.abs(first - second).max() > 1e-3, "carried state is the promise here"
    embedder.elmo_bilm._elmo_lstm.reset_states()
    np.testing.assert_array_equal(embedder.embed_sentence(A), first)
    embedder.reset_states()
    np.testing.assert_array_equal(embedder.embed_sentence(A), first)
    embedder.elmo_bilm._elmo_lstm.stateful = False
    np.testing.assert_array_equal(embedder.embed_sentence(A), first)
    stateless = ElmoEmbedder(files.options, files.weights, stateful=False)
    for _ in range(2):
        np.testing.assert_allclose(stateless.embed_batch([B, A])[1], first, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [(("Hi", "you"), 2), ([""], 1), (["<S>"], 1), ([], 0), ("Hi you", 6)],  # a string is its characters, as it was
)
def test_shapes(embedder: ElmoEmbedder, sentence: list[str], tokens: int) -> None:
    layers = embedder.embed_sentence(sentence)
    assert layers.shape == (3, tokens, 12)
    assert layers.dtype == np.float32


def test_batches_that_crashed_there(embedder: ElmoEmbedder) -> None:
    assert embedder.embed_batch([]) == []
    assert [x.shape for x in embedder.embed_batch([[], []])] == [(3, 0, 12)] * 2


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_sentences_in_batches(files: Files, embedder: ElmoEmbedder, batch_size: int) -> None:
    sentences = [A, B, C]
    batches = [sentences[k : k + batch_size] for k in range(0, 3, batch_size)]
    expected = [layers for batch in files.run(batches) for layers in batch]
    for got, wanted in zip(embedder.embed_sentences(iter(sentences), batch_size), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_sentences_are_read_as_they_are_asked_for(embedder: ElmoEmbedder) -> None:
    taken: list[int] = []

    def endless() -> Iterator[list[str]]:
        while True:
            taken.append(1)
            yield B

    found = embedder.embed_sentences(endless(), 2)
    assert not taken
    next(found)
    assert len(taken) == 2
    with pytest.raises(ConfigurationError, match="batch_size is 0"):
        embedder.embed_sentences([A], 0)


def test_a_batch_as_tensors(embedder: ElmoEmbedder) -> None:
    values, mask = embedder.batch_to_embeddings([A, B])
    assert values.shape == (2, 3, 7, 12)
    assert mask.dtype == torch.int64
    assert mask.tolist() == [[1] * 7, [1] + [0] * 6]
    assert not values[1, :, 1:].any()
    embedder.reset_states()
    found = embedder.elmo_bilm(batch_to_ids([A, B]))
    assert found["mask"].tolist() == [[1] * 9, [1] * 3 + [0] * 6]
    np.testing.assert_allclose(found["activations"][2][0, 1:-1], values[0, 2], rtol=0, atol=1e-6)


def test_word_vectors_follow_the_weights(files: Files, embedder: ElmoEmbedder) -> None:
    """Loaded after a first call, or changed in place."""
    embedder.embed_sentence(A)
    other = models.tiny(seed=9)
    old = other.pretrained.build().state_dict()  # under the names of elmokit 0.1.0
    embedder.elmo_bilm.load_state_dict({f"bilm.{name}": values for name, values in old.items()})
    embedder.reset_states()
    np.testing.assert_allclose(embedder.embed_sentence(A), other.embed(A), rtol=0, atol=1e-5)
    embedder.reset_states()
    embedder.elmo_bilm.load_state_dict(ElmoEmbedder(files.options, files.weights).elmo_bilm.state_dict())
    np.testing.assert_allclose(embedder.embed_sentence(A), files.tiny.embed(A), rtol=0, atol=1e-5)
    with torch.no_grad():
        embedder.elmo_bilm._token_embedder._projection.bias.add_(1)
    embedder.reset_states()
    by_ids = embedder.elmo_bilm(batch_to_ids([A]))["activations"]
    embedder.reset_states()
    np.testing.assert_allclose(embedder.embed_sentence(A)[2], by_ids[2][0, 1:-1], rtol=0, atol=1e-6)


def test_states_are_found_among_modules(embedder: ElmoEmbedder) -> None:
    once = embedder.embed_sentence(A)
    (state,) = (module for module in embedder.elmo_bilm.modules() if hasattr(module, "reset_states"))
    state.reset_states()
    np.testing.assert_array_equal(embedder.embed_sentence(A), once)
    assert embedder.elmo_bilm.state_dict().keys() == dict(embedder.elmo_bilm.named_parameters()).keys()


@pytest.mark.parametrize("wrong", [["the", None], ["the", 3], None, 3])
def test_what_is_no_token_is_named(embedder: ElmoEmbedder, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"sentence 1 is .*; expected a (string|list of tokens)"):
        embedder.embed_batch([["a"], wrong])
    with pytest.raises(InputError, match="sentence 0 is"):
        embedder.embed_sentence(wrong)
    with pytest.raises(InputError, match="sentence 0 is"):
        embedder.batch_to_embeddings([wrong])


def test_any_source_serves_as_the_model(files: Files, tmp_path: Path) -> None:
    expected = ElmoEmbedder(files.options, files.weights).embed_sentence(A)
    archive = shutil.make_archive(str(tmp_path / "model"), "zip", files.folder)
    for given in ({"options_file": files.folder}, {"weight_file": files.weights}, {"options_file": archive}):
        np.testing.assert_array_equal(ElmoEmbedder(**given).embed_sentence(A), expected)


def test_an_address_is_fetched_once(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            asked.append(self.path)

    monkeypatch.setenv("ELMOKIT_CACHE", str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=files.folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{server.server_port}"
        for _ in range(2):
            got = ElmoEmbedder(f"{at}/options.json", f"{at}/weights.hdf5").embed_sentence(A)
            np.testing.assert_array_equal(got, ElmoEmbedder(files.options, files.weights).embed_sentence(A))
        assert asked == ["/options.json", "/weights.hdf5"]
        with pytest.raises(WeightsError, match=r"gone\.hdf5: the server says 404"):
            ElmoEmbedder(f"{at}/options.json", f"{at}/gone.hdf5")
        server.shutdown()


def test_what_is_missing_is_named(files: Files) -> None:
    with pytest.raises(WeightsError, match="there is no weight_file"):
        ElmoEmbedder(files.options)
    with pytest.raises(WeightsError, match=r"nowhere\.json"):
        ElmoEmbedder("nowhere.json", files.weights)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="cuda:0"):
            ElmoEmbedder(files.options, files.weights, 0)


def test_models_that_were_refused_there(tmp_path: Path) -> None:
    for k, options in enumerate(
        (
            models.tiny_options(lstm={"use_skip_connections": False}),
            models.tiny_options(char_cnn={"max_characters_per_token": 12}),
        )
    ):
        made = write_official(tmp_path / str(k), models.tiny(options))
        embedder = ElmoEmbedder(made.options, made.weights)
        np.testing.assert_allclose(embedder.embed_sentence(A), made.tiny.embed(A), rtol=0, atol=1e-5)
    with pytest.raises(ConfigurationError, match="at most 10 characters"):
        embedder.elmo_bilm(batch_to_ids([A]))


@pytest.mark.parametrize("listed", [True, False, None])
def test_a_literal_boundary_is_one_in_allennlp_always_and_in_bilm_tf_if_the_vocabulary_lists_it(
    listed: bool | None, tmp_path: Path
) -> None:
    official = write_official(tmp_path / "model", models.tiny(seed=5))
    if listed is not None:
        words = ["<S>", "</S>", "<UNK>", "the"] if listed else ["<UNK>", "the", "cat"]
        (tmp_path / "model" / "vocab.txt").write_text("\n".join(words) + "\n")
    rows = ElmoEmbedder(official.options, official.weights, stateful=False).embed_sentence(["<S>", "a", "</S>"])[0]
    elmo = Elmo.from_pretrained(tmp_path / "model", device="cpu")
    ours = elmo.encode_layers([["<S>", "a", "</S>"]])[0][0]
    np.testing.assert_allclose(rows[1], ours[1], atol=1e-6)
    boundary = elmo.codec.begin, elmo.codec.end
    for k, word in ((0, "<S>"), (2, "</S>")):
        assert np.allclose(rows[k], ours[k], atol=1e-6) == (listed is not False)
        is_boundary = np.array_equal(elmo.codec.encode([word])[0], boundary[k // 2])
        assert is_boundary == (listed is not False)
