"""Programs for bilm-tf, with arrays in the place of placeholders and sessions."""

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from official_files import Files

import reference
from elmokit.compat.bilm import (
    Batcher,
    BidirectionalLanguageModel,
    TokenBatcher,
    Vocabulary,
    dump_bilm_embeddings,
    dump_token_embeddings,
    weight_layers,
)
from elmokit.errors import InputError, WeightsError

S = [["The", "cat", "sat", "."], ["Hi", "there"]]
WORDS = ("<S>", "</S>", "<UNK>", "The", "cat", "sat", ".", "Hi")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "vocab.txt"


def test_characters(files: Files, vocabulary: Path, tmp_path: Path) -> None:
    ids = Batcher(vocabulary, 50).batch_sentences(S)
    assert (ids.shape, ids.dtype) == ((2, 6, 50), np.int64)
    for row, tokens in zip(ids, S, strict=True):
        np.testing.assert_array_equal(row[: len(tokens) + 2], reference.sentence_rows(tokens))
        assert not row[len(tokens) + 2 :].any()
    assert Batcher(vocabulary, 12).batch_sentences([["x" * 60]]).shape == (1, 3, 12)
    literal = Batcher(vocabulary, 50).batch_sentences([["<S>"]])
    np.testing.assert_array_equal(literal[0, 1], literal[0, 0])
    (tmp_path / "plain.txt").write_text("cat\n")
    literal = Batcher(tmp_path / "plain.txt", 50).batch_sentences([["<S>"]])
    assert literal[0, 1, 1] == ord("<") + 1
    assert Batcher(vocabulary, 50).batch_sentences([]).shape == (0, 2, 50)


def test_usage_of_characters(files: Files, vocabulary: Path) -> None:
    """bilm-tf's usage_character.py."""
    batcher = Batcher(str(vocabulary), 50)
    bilm = BidirectionalLanguageModel(files.options, files.weights)
    context_embeddings = bilm(batcher.batch_sentences(S))
    elmo = weight_layers("input", context_embeddings, l2_coef=0.0)
    top = weight_layers("output", context_embeddings, use_top_only=True)
    assert context_embeddings["lm_embeddings"].shape == (2, 3, 4, 12)
    assert context_embeddings["lengths"].tolist() == [4, 2]
    assert context_embeddings["mask"].tolist() == [[True] * 4, [True] * 2 + [False] * 2]
    assert context_embeddings["token_embeddings"].shape == (2, 6, 6)
    for k, (stack,) in enumerate(zip(files.run([S])[0], strict=True)):
        n = len(S[k])
        np.testing.assert_allclose(context_embeddings["lm_embeddings"][k, :, :n], stack, rtol=0, atol=1e-5)
        np.testing.assert_allclose(elmo["weighted_op"][k, :n], stack.mean(axis=0), rtol=0, atol=1e-5)
        np.testing.assert_allclose(top["weighted_op"][k, :n], stack[-1], rtol=0, atol=1e-5)
        assert not context_embeddings["lm_embeddings"][k, :, n:].any()


def test_state_goes_on_from_call_to_call(files: Files, vocabulary: Path) -> None:
    ids = Batcher(vocabulary, 50).batch_sentences(S)
    bilm = BidirectionalLanguageModel(files.options, files.weights)
    first, second = bilm(ids)["lm_embeddings"], bilm(ids)["lm_embeddings"]
    np.testing.assert_allclose(second[0], files.run([S, S])[1][0], rtol=0, atol=1e-5)
    assert np.abs(first - second).max() > 1e-3
    bilm.reset_states()
    np.testing.assert_array_equal(bilm(ids)["lm_embeddings"], first)
    off = BidirectionalLanguageModel(files.options, files.weights, stateful=False)
    for _ in range(2):
        np.testing.assert_allclose(off(ids)["lm_embeddings"], first, rtol=0, atol=1e-6)


def test_usage_of_tokens(files: Files, vocabulary: Path, tmp_path: Path) -> None:
    """bilm-tf's usage_token.py: the words' vectors are dumped, and their numbers run."""
    table = tmp_path / "tokens.hdf5"
    dump_token_embeddings(vocabulary, files.options, files.weights, table)
    with h5py.File(table) as file:
        assert file["embedding"].shape == (len(WORDS), 6)
        wanted = reference.embed(files.tiny.weights, files.tiny.options, list(WORDS[3:]))[0][0]
        np.testing.assert_allclose(file["embedding"][0], wanted[0, :6], rtol=0, atol=1e-5)  # <S> is the boundary
        np.testing.assert_allclose(file["embedding"][3:], wanted[1:-1, :6], rtol=0, atol=1e-5)
    batcher = TokenBatcher(vocabulary)
    ids = batcher.batch_sentences([["The", "cat"], ["Hi"]])
    assert ids.tolist() == [[1, 4, 5, 2], [1, 8, 2, 0]]
    assert batcher.batch_sentences([["zebra"]]).tolist() == [[1, 3, 2]]
    bilm = BidirectionalLanguageModel(
        files.options, files.weights, use_character_inputs=False, embedding_weight_file=table, stateful=False
    )
    by_words = bilm(ids)
    by_characters = BidirectionalLanguageModel(files.options, files.weights)(
        Batcher(vocabulary, 50).batch_sentences([["The", "cat"], ["Hi"]])
    )
    for name, values in by_characters.items():
        np.testing.assert_allclose(by_words[name], values, rtol=0, atol=1e-5)


def test_a_dumped_file(files: Files, vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The cat sat .\n\nHi there\n")
    dump_bilm_embeddings(vocabulary, tmp_path / "text.txt", files.options, files.weights, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert sorted(file) == ["0", "1", "2"]
        assert file["1"].shape == (3, 0, 12)
        assert file["2"].dtype == np.float32
        wanted = files.run([[S[0]], [[]], [S[1]]])
        np.testing.assert_allclose(file["0"][...], wanted[0][0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(file["2"][...], wanted[2][0], rtol=0, atol=1e-5)
    dump_bilm_embeddings(
        vocabulary, tmp_path / "text.txt", files.options, files.weights, tmp_path / "off.hdf5", stateful=False
    )
    with h5py.File(tmp_path / "off.hdf5") as file:
        np.testing.assert_allclose(file["2"][...], files.tiny.embed(S[1]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", [False, True])
def test_mixes(files: Files, vocabulary: Path, norm: bool) -> None:
    found = BidirectionalLanguageModel(files.options, files.weights)(Batcher(vocabulary, 50).batch_sentences(S))
    raw = [0.1, -0.2, 0.4]
    mixed = weight_layers("x", found, l2_coef=0.5, do_layer_norm=norm, weights=raw, gamma=2.0)
    stacks = [reference.embed(files.tiny.weights, files.tiny.options, tokens)[0] for tokens in S]
    wanted = reference.mix(stacks, raw, 2.0, norm="bilm-tf" if norm else None)
    for row, one in zip(mixed["weighted_op"], wanted, strict=True):
        one = one[1:-1]
        np.testing.assert_allclose(row[: len(one)], one, rtol=0, atol=1e-5)
    assert mixed["regularization_op"] == pytest.approx(0.5 * (0.01 + 0.04 + 0.16))
    with pytest.raises(InputError, match="2 weights for 3 layers"):
        weight_layers("x", found, weights=[1, 2])


def test_against_the_tool_itself(shared: Path) -> None:
    """Vectors that bilm-tf's authors stored: three rows of sentences, state carried through each."""
    at = shared / "fixtures" / "elmo-skip"
    bilm = BidirectionalLanguageModel(at / "options.json", at / "lm_weights.hdf5")
    batcher = Batcher(at / "vocab_test.txt", 50)
    rows = json.loads((at / "sentences.json").read_text())
    sentences: list[list[list[str]]] = [[one.split() if isinstance(one, str) else one for one in row] for row in rows]
    files = [h5py.File(at / f"lm_embeddings_{k}.hdf5") for k in range(3)]
    worst = 0.0
    for k in range(10):
        found = bilm(batcher.batch_sentences([row[k] for row in sentences]))
        for row, file in enumerate(files):
            wanted: Any = np.concatenate(list(file[str(k)][...]), axis=-1)  # forward and backward of the top layer
            got = found["lm_embeddings"][row, -1, : found["lengths"][row]]
            worst = max(worst, float(np.abs(got - wanted).max()))
    for file in files:
        file.close()
    assert worst < 5e-6
    with h5py.File(at / "elmo_token_embeddings.hdf5") as file:
        stored = file["embedding"][...]
    ids = batcher.batch_sentences([[word] for word in batcher.vocabulary])[:, 1]
    np.testing.assert_allclose(bilm.tokens(ids.astype(np.int32)).numpy(), stored, rtol=0, atol=1e-6)


def test_a_vocabulary_of_a_file(vocabulary: Path, tmp_path: Path) -> None:
    assert Vocabulary(str(vocabulary)) == Vocabulary(vocabulary, validate_file=True) == Vocabulary(WORDS) == WORDS
    assert pickle.loads(pickle.dumps(Vocabulary(vocabulary))).word_to_id("cat") == 4
    (tmp_path / "short.txt").write_text("cat\n")
    with pytest.raises(InputError, match="lacks <S> </S> <UNK>"):
        Vocabulary(tmp_path / "short.txt", validate_file=True)


def test_refused(files: Files, vocabulary: Path, tmp_path: Path) -> None:
    bilm = BidirectionalLanguageModel(files.options, files.weights)
    ids = Batcher(vocabulary, 50).batch_sentences(S)
    for wrong in (ids[0], ids[..., :7], ids + 100):
        with pytest.raises(InputError, match=r"expected character ids \(sentences, positions, 50\)"):
            bilm(wrong)
    with pytest.raises(InputError, match="not <S> words </S> padding"):
        bilm(ids[:, ::-1])
    with pytest.raises(InputError, match="embedding_weight_file is needed"):
        BidirectionalLanguageModel(files.options, files.weights, use_character_inputs=False)
    with pytest.raises(WeightsError, match="no `embedding`"):
        BidirectionalLanguageModel(files.options, files.weights, False, files.weights)
    (tmp_path / "short.txt").write_text("cat\n")
    with pytest.raises(InputError, match="lacks <S> </S> <UNK>"):
        TokenBatcher(tmp_path / "short.txt")
