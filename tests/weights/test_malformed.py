"""Every damaged or foreign file gives one clear error: which file, what was found, what was expected."""

import io
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from model_files import OPTIONS, WORDS, changed, random_weights, write_arrays, write_model

import models
from elmokit.chars import N_BYTE_IDS, CodecSpec
from elmokit.errors import WeightsError
from elmokit.weights import SoftmaxTensors, load_pretrained
from elmokit.weights._archive import _copy
from elmokit.weights.described import LARGEST_WEIGHT, check_codec, check_range
from elmokit.weights.hdf5 import find_array, read_official

CELL = "RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell"


def edit(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with h5py.File(folder / "lm_weights.hdf5", "r+") as file:
            change(file)

    return damage


def replace_array(key: str, array: np.ndarray) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        del file[key]
        file[key] = array

    return edit(change)


def drop(key: str) -> Callable[[Path], None]:
    return edit(lambda file: file.__delitem__(key))


def declare(key: str, shape: tuple[int, ...]) -> Callable[[Path], None]:
    """An array that says it has this shape and holds no data at all."""

    def change(file: h5py.File) -> None:
        del file[key]
        file.create_dataset(key, shape=shape, dtype="f4", chunks=tuple(min(n, 64) for n in shape))

    return edit(change)


def elsewhere(key: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        write_arrays(folder / "elsewhere.h5", {"there": np.zeros((261, 3), np.float32)})
        with h5py.File(folder / "lm_weights.hdf5", "r+") as file:
            del file[key]
            file[key] = h5py.ExternalLink("elsewhere.h5", "there")

    return damage


def options(text: str | bytes | dict) -> Callable[[Path], None]:
    data = json.dumps(text).encode() if isinstance(text, dict) else text.encode() if isinstance(text, str) else text
    return lambda folder: (folder / "options.json").write_bytes(data) and None


def weights(data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "lm_weights.hdf5").write_bytes(data) and None


def cut(share: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "lm_weights.hdf5"
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return damage


def nan(value: float) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        file["CNN/W_cnn_1"][0, 2, 1, 0] = value

    return edit(change)


def vocabulary(data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / "vocab.txt").write_bytes(data) and None


def forward_only(folder: Path) -> None:
    drop("RNN_1")(folder)
    options(OPTIONS | {"bidirectional": True})(folder)


def one_layer_file(folder: Path) -> None:
    write_arrays(folder / "lm_weights.hdf5", random_weights(changed("lstm.n_layers", 1)))


H5, JSON, VOCAB = "lm_weights.hdf5", "options.json", "vocab.txt"
OTHER = "belong to different models"

CASES = {
    # name: (damage, the file named, what else the message says)
    "missing key": (drop("CNN_high_0/W_carry"), H5, ["CNN_high_0/W_carry", "missing", "(5, 5)"]),
    "missing layer": (drop("RNN_1/RNN/MultiRNNCell/Cell1"), H5, ["RNN_1/RNN/MultiRNNCell/Cell1", "missing"]),
    "wrong shape": (
        replace_array("CNN/W_cnn_1", np.zeros((1, 3, 3, 4), "f4")),
        H5,
        ["(1, 3, 3, 4)", "(1, 3, 3, 3)", OTHER],
    ),
    "wrong rank": (replace_array("CNN/b_cnn_0", np.float32(1)), H5, ["CNN/b_cnn_0", "()", "(2,)"]),
    "integers": (replace_array(f"{CELL}/B", np.zeros(24, "i4")), H5, [f"{CELL}/B", "int32", "float32"]),
    "strings": (replace_array(f"{CELL}/B", np.array([b"a"] * 24)), H5, [f"{CELL}/B", "float32"]),
    "group for array": (
        edit(lambda f: (f.__delitem__("char_embed"), f.create_group("char_embed"))),
        H5,
        ["char_embed", "group", "(261, 3)"],
    ),
    "NaN": (nan(float("nan")), H5, ["CNN/W_cnn_1", "1 of 27", "NaN or infinite"]),
    "infinite": (nan(float("-inf")), H5, ["CNN/W_cnn_1", "1 of 27"]),
    "terabytes declared": (declare("char_embed", (261, 10**12)), H5, ["1000000000000", "(261, 3)", OTHER]),
    "declared, never written": (declare("char_embed", (261, 3)), H5, ["char_embed", "holds none"]),
    "softmax of terabytes": (
        edit(
            lambda f: (
                f.create_dataset("softmax/W", shape=(10**12, 4), dtype="f4", chunks=(64, 4)),
                f.create_dataset("softmax/b", shape=(10**12,), dtype="f4", chunks=(64,)),
            )
        ),
        H5,
        ["softmax/W", "holds none"],
    ),
    "softmax without bias": (
        edit(lambda f: f.create_dataset("softmax/W", data=np.zeros((5, 4), "f4"))),
        H5,
        ["softmax/b", "missing", "(5,)"],
    ),
    "link to another file": (elsewhere("char_embed"), H5, ["char_embed", "another file"]),
    "half a file": (cut(0.5), H5, ["incomplete"]),
    "start of a file": (cut(0.02), H5, ["incomplete"]),
    "last byte missing": (cut(0.9999), H5, ["incomplete"]),
    "empty": (weights(b""), H5, ["not an HDF5 file", "empty"]),
    "text": (weights(b"hello, this is not HDF5"), H5, ["not an HDF5 file"]),
    "git-lfs pointer": (weights(b"version https://git-lfs.github.com/spec/v1\n"), H5, ["git lfs pull"]),
    "web page": (weights(b"<!DOCTYPE html><html>404"), H5, ["web page"]),
    "vectors, not a model": (
        lambda folder: write_arrays(folder / H5, {"0": np.zeros((3, 2, 8), "f4")}) and None,
        H5,
        ["no LSTM weights", "RNN_0"],
    ),
    "options of a smaller model": (options(changed("lstm.n_layers", 1)), H5, ["Cell1", OTHER]),
    "options of two layers, file of one": (one_layer_file, H5, ["RNN_0/RNN/LSTMCell", OTHER]),
    "options of a larger model": (options(changed("lstm.n_layers", 3)), H5, ["Cell2", "missing", OTHER]),
    "options without highway": (options(changed("char_cnn.n_highway", 0)), H5, ["CNN_high_0", OTHER]),
    "options with fewer filters": (options(changed("char_cnn.filters", [[1, 2]])), H5, [OTHER]),
    "options of another width": (options(changed("lstm.dim", 4096)), H5, ["(8, 24)", "(8, 16384)", OTHER]),
    "options both ways, file one": (forward_only, H5, ["RNN_1", "missing"]),
    "absurd sizes": (options(changed("lstm.dim", 10**15)), JSON, ["lstm.dim", "1000000000000000"]),
    "sizes of terabytes": (options(changed("lstm.dim", 10**7)), H5, [OTHER]),
    "a billion layers": (options(changed("lstm.n_layers", 10**9)), JSON, ["lstm.n_layers"]),
    "not JSON": (options('{"lstm": '), JSON, ["not JSON", "line 1"]),
    "not text": (options(b"\xff\xfe\x00\x01"), JSON, ["not JSON"]),
    "a JSON list": (options("[1, 2]"), JSON, ["[1, 2]", "object"]),
    "JSON too deep": (options("[" * 100_000), JSON, ["not JSON"]),
    "no lstm": (options(changed("lstm")), JSON, ["lstm is missing"]),
    "no dim": (options(changed("lstm.dim")), JSON, ["lstm.dim", "missing", "whole number"]),
    "dim is a string": (options(changed("lstm.dim", "6")), JSON, ["lstm.dim", '"6"', "whole number"]),
    "dim is true": (options(changed("lstm.dim", True)), JSON, ["lstm.dim", "true"]),
    "negative": (options(changed("lstm.projection_dim", -4)), JSON, ["lstm.projection_dim", "-4"]),
    "projection wider than cell": (options(changed("lstm.projection_dim", 7)), JSON, ["7", "6", "width"]),
    "negative clip": (options(changed("lstm.cell_clip", -3)), JSON, ["lstm.cell_clip", "-3"]),
    "skip is a word": (
        options(changed("lstm.use_skip_connections", "yes")),
        JSON,
        ["use_skip_connections", "true or false"],
    ),
    "no characters, no words": (options(changed("char_cnn")), JSON, ["char_cnn", "embedding"]),
    "unknown activation": (options(changed("char_cnn.activation", "gelu")), JSON, ["activation", "gelu", "relu"]),
    "other characters": (options(changed("char_cnn.n_characters", 60)), JSON, ["n_characters", "60", "262"]),
    "filters are numbers": (options(changed("char_cnn.filters", [1, 2])), JSON, ["filters", "[1, 2]", "pairs"]),
    "filters of nothing": (options(changed("char_cnn.filters", [[0, 2]])), JSON, ["filters"]),
    "no filters": (options(changed("char_cnn.filters", [])), JSON, ["filters"]),
    "filter wider than words": (options(changed("char_cnn.filters", [[11, 2]])), JSON, ["filters", "10 characters"]),
    "vocabulary not UTF-8": (vocabulary(b"<S>\n\xff\xfe\n"), VOCAB, ["not UTF-8", "byte 4"]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_error(tmp_path, name):
    damage, named, said = CASES[name]
    folder = write_model(tmp_path / "model")
    load_pretrained(folder)  # whole before
    damage(folder)
    tracemalloc.start()
    with pytest.raises(WeightsError) as caught:
        load_pretrained(folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    message = str(caught.value)
    assert message.startswith(str(folder / named)), message
    assert "\n" not in message
    for text in said:
        assert text in message
    assert peak < 50e6  # a lie about sizes costs nothing


def test_missing_files(tmp_path):
    folder = write_model(tmp_path / "model")
    (folder / "options.json").unlink()
    with pytest.raises(WeightsError, match=r"lm_weights\.hdf5: no .*options\.json beside it"):
        load_pretrained(folder)
    (folder / "lm_weights.hdf5").unlink()
    with pytest.raises(WeightsError, match="no model in this folder, which holds nothing"):
        load_pretrained(folder)


def test_nonfinite_weights_can_be_asked_for(tmp_path):
    folder = write_model(tmp_path)
    nan(float("nan"))(folder)
    model = load_pretrained(folder, allow_nonfinite=True)
    assert model.tensors["tokens.convolutions.1.weight"].isnan().sum() == 1
    with pytest.raises(WeightsError, match="NaN or infinite"):
        read_official(folder / "lm_weights.hdf5")


@pytest.mark.parametrize("value", [1.1e6, -3e38])
def test_absurd_magnitudes_are_refused(tmp_path, value):
    """As a flipped bit of an exponent makes them; what is merely large is read."""
    weights = random_weights()
    weights["char_embed"][:] = 9e5
    assert load_pretrained(write_model(tmp_path, OPTIONS, weights)).tensors["tokens.characters.weight"].max() == 9e5
    weights["char_embed"][3, 1] = value
    with pytest.raises(WeightsError, match=r"lm_weights\.hdf5: 'char_embed' has a value of .*; the file is damaged"):
        load_pretrained(write_model(tmp_path, OPTIONS, weights))
    assert load_pretrained(tmp_path, allow_nonfinite=True).tensors["tokens.characters.weight"].abs().max() > 1e6


@pytest.mark.parametrize("words", [WORDS[:-1], (*WORDS, "dog")])
def test_vocabulary_of_another_model(tmp_path, words):
    told = OPTIONS | {"n_tokens_vocab": 5}
    folder = write_model(tmp_path, told, random_weights(told, softmax=True), words)
    with pytest.raises(WeightsError, match=rf"vocab\.txt: {len(words)} words, but 'softmax/W' in .* has 5 rows"):
        load_pretrained(folder)


def test_word_level_vocabulary_without_its_marks(tmp_path):
    told = {"lstm": OPTIONS["lstm"], "n_tokens_vocab": 3}
    folder = write_model(tmp_path, told, random_weights(told), ["a", "b", "<UNK>"])
    with pytest.raises(WeightsError, match=r"vocab\.txt: <S>, </S> missing"):
        load_pretrained(folder)


@pytest.mark.parametrize("share", np.linspace(0.01, 0.99, 25).round(3))
def test_files_cut_anywhere(tmp_path, share):
    folder = write_model(tmp_path)
    cut(share)(folder)
    with pytest.raises(WeightsError, match=r"lm_weights\.hdf5: (damaged|not an HDF5)"):
        load_pretrained(folder)


def test_an_array_of_no_rows_holds_all_that_it_declares(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.h5", {"none": np.zeros((0, 3), np.float32)})
    with h5py.File(tmp_path / "a.h5") as file:
        assert find_array(file, "none", (None, 3)).shape == (0, 3)


def test_weights_up_to_the_largest_are_taken_and_the_worst_beyond_is_named() -> None:
    def none_lost() -> tuple[int, int]:
        return 0, 9

    check_range(-LARGEST_WEIGHT, LARGEST_WEIGHT, none_lost, "w")
    for low, high, worst in (
        (-2e6, 1e7, r"1e\+07"),
        (-1e7, 2e6, r"-1e\+07"),
        (-2e6, 0, r"-2e\+06"),
        (-3e7, 3e7, r"3e\+07"),
    ):
        with pytest.raises(WeightsError, match=rf"w has a value of {worst}, but weights of a trained model lie within"):
            check_range(low, high, none_lost, "w")
    with pytest.raises(WeightsError, match="w has 2 of 9 values NaN or infinite"):
        check_range(float("nan"), float("nan"), lambda: (2, 9), "w")


def test_a_file_of_an_archive_that_ends_too_early(tmp_path: Path) -> None:
    with pytest.raises(EOFError, match="target ends after 2 of 3 bytes"):
        _copy(io.BytesIO(b"ab"), tmp_path / "target", 3)


def test_bytes_need_their_characters_and_no_word_vectors() -> None:
    tokens = models.tiny().pretrained.config.tokens
    for wrong in ({"n_characters": N_BYTE_IDS - 1}, {"word_dim": 4, "n_words": 5}):
        config = replace(models.tiny().pretrained.config, tokens=replace(tokens, **wrong))
        with pytest.raises(WeightsError, match=rf"here: \d+ characters, expected {N_BYTE_IDS} and no word vectors"):
            check_codec(CodecSpec("bytes"), config, "here")


def test_only_a_plain_softmax_with_its_words_can_be_cut() -> None:
    pretrained = models.tiny().pretrained
    words = ("<S>", "</S>", "<UNK>", "a")
    width = pretrained.config.lstm.projection_dim
    softmax = SoftmaxTensors(torch.zeros(len(words), width), torch.zeros(len(words)))
    for lacking in (replace(pretrained, vocabulary=words), replace(pretrained, softmax=softmax, vocabulary=None)):
        for source, named in (("here", "here"), ("", "the model")):
            with pytest.raises(WeightsError, match=f"{named}: has no plain softmax with its words"):
                replace(lacking, source=source).with_words(3)
    cut = replace(pretrained, softmax=softmax, vocabulary=words).with_words(3)
    assert tuple(cut.vocabulary or ()) == words[:3]
