"""TensorFlow Hub's ELMo module as its documentation calls it."""

from typing import Any

import numpy as np
import pytest
from official_files import Files

from elmokit import Elmo
from elmokit.compat import tfhub
from elmokit.errors import InputError

TEXTS = ["the cat is on the mat", "dogs are in the fog"]
TOKENS = [["the", "cat", "is", "on", "the", "mat"], ["dogs", "are", "in", "the", "fog", ""]]
NAMES = ["word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"]


@pytest.fixture(scope="module")
def module(files: Files) -> tfhub.Module:
    return tfhub.Module(files.folder)


def check(found: dict[str, Any], files: Files) -> None:
    assert list(found) == NAMES
    assert {name: values.shape for name, values in found.items()} == {
        "word_emb": (2, 6, 6), "lstm_outputs1": (2, 6, 12), "lstm_outputs2": (2, 6, 12), "elmo": (2, 6, 12),
        "default": (2, 12),
    }  # fmt: skip
    for row, text in enumerate(TEXTS):
        stack = files.tiny.embed(text.split())  # (L, T, D)
        n = stack.shape[1]
        for name, wanted in zip(NAMES, (stack[0][:, :6], stack[1], stack[2], stack.mean(axis=0)), strict=False):
            np.testing.assert_allclose(found[name][row, :n], wanted, rtol=0, atol=1e-5)
            assert found[name].dtype == np.float32
            assert not found[name][row, n:].any()
        np.testing.assert_allclose(found["default"][row], stack.mean(axis=(0, 1)), rtol=0, atol=1e-5)


def test_texts(files: Files, module: tfhub.Module) -> None:
    check(module(TEXTS, signature="default", as_dict=True), files)
    check(module(np.array(TEXTS), as_dict=True), files)
    check(module([text.encode() for text in TEXTS], as_dict=True), files)
    np.testing.assert_array_equal(module(TEXTS), module(TEXTS, as_dict=True)["default"])


def test_tokens(files: Files, module: tfhub.Module) -> None:
    given = {"tokens": TOKENS, "sequence_len": [6, 5]}
    check(module(inputs=given, signature="tokens", as_dict=True), files)
    check(module({"tokens": np.array(TOKENS), "sequence_len": np.array([6, 5])}, "tokens", True), files)


def test_as_it_is_called_in_version_2(files: Files) -> None:
    elmo = tfhub.load(Elmo.from_pretrained(files.folder))
    check(elmo.signatures["default"](TEXTS), files)
    check(elmo.signatures["tokens"](tokens=TOKENS, sequence_len=[6, 5]), files)
    assert elmo.get_signature_names() == ["default", "tokens"]


def test_a_trained_mix(files: Files) -> None:
    found = tfhub.Module(files.folder, weights=[-1e4, 0, -1e4], gamma=2.0)(TEXTS, as_dict=True)
    np.testing.assert_allclose(found["elmo"], 2 * found["lstm_outputs1"], rtol=0, atol=1e-6)


def test_few_words(module: tfhub.Module) -> None:
    assert module([], as_dict=True)["elmo"].shape == (0, 0, 12)
    assert not module(["", "a"])[0].any()


def test_refused(files: Files, module: tfhub.Module) -> None:
    for call, said in (
        (lambda: tfhub.Module("https://tfhub.dev/google/elmo/3"), "give a model, as allennlp:original"),
        (lambda: tfhub.Module(files.folder, trainable=True), "ElmoEmbedding"),
        (lambda: tfhub.Module(files.folder, weights=[1]), "1 weights for the 3 layers"),
        (lambda: module(TEXTS, signature="other"), "has default and tokens"),
        (lambda: module("one text"), "takes a list of texts"),
        (lambda: module([3]), "expected text"),
        (lambda: module(TEXTS, signature="tokens"), "the signature tokens takes"),
        (lambda: module({"tokens": TOKENS, "sequence_len": [6, 7]}, signature="tokens"), r"but lengths \[6, 7\]"),
        (lambda: module({"tokens": TOKENS, "sequence_len": [6, -1]}, signature="tokens"), r"but lengths \[6, -1\]"),
    ):
        with pytest.raises(InputError, match=said):
            call()
