"""`Transformer` against the library's own alignment and runs; no word loses its place, whatever it is made of."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import transformer_models
from elmokit.encoders.transformer._pieces import cut_windows
from elmokit.encoders.transformer.encoder import Transformer, longest_input
from elmokit.errors import InputError, MissingExtraError, WeightsError

BERT, GPT = transformer_models.bert(), transformer_models.gpt()
MODELS = {"bert": BERT, "gpt": GPT}
ENCODERS = {name: Transformer(m.network, m.tokenizer, device="cpu") for name, m in MODELS.items()}
ODD = [
    "", " ", "\u200b", "\u200d\ufeff", "\ud800", "\x00", "a\u0301", "ﷺ", "שלום", "مرحبا\u200f", "\u202eabc\u202c", "猫",
    "👩‍👩‍👧‍👦", "🇩🇪", "न\u094dद", "ſ", "İ", "ǆ", "\U000e0041", "\u2028", "new york", "[MASK]", "<|endoftext|>", "don't",
    "x" * 101, "playing" * 20,
]  # fmt: skip
words = st.text(max_size=8) | st.sampled_from(ODD) | st.sampled_from(["the", "cat", "playing", "mats", "."])


def hidden(model: transformer_models.Model, ids: list[int]) -> np.ndarray:
    """All layers of one row of pieces, by the library alone. (L, s, D)"""
    with torch.no_grad():
        made = model.network(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return torch.stack(made.hidden_states)[:, 0].numpy()


def pieces_of(name: str, sentence: list[str]) -> list[list[int]]:
    """The pieces of each word, by the library's own alignment of a whole sentence."""
    tokenizer: Any = MODELS[name].tokenizer
    clean = [w.replace("\ud800", "\ufffd") for w in sentence]
    if name == "gpt":  # byte-level: a word is what follows a space
        return [list(tokenizer(" " + w)["input_ids"]) if w else [] for w in clean]
    made = tokenizer(clean, is_split_into_words=True, add_special_tokens=False)
    found: list[list[int]] = [[] for _ in clean]
    for piece, word in zip(made["input_ids"], made.word_ids(), strict=True):
        found[word].append(piece)
    return [ids or [tokenizer.unk_token_id] for ids in found]


def check(name: str, sentence: list[str], *, every: int = 1) -> None:
    """Every word's pieces as the library aligns them, and every vector as the library gives it for its window.

    Of very many windows, each `every`-th is looked at, and the last.
    """
    encoder = ENCODERS[name]
    expected = pieces_of(name, sentence)
    assert [list(ids) for ids in encoder.cutter.cut(sentence)] == expected
    (got,) = encoder.encode_layers([sentence])
    assert got.shape == (encoder.depth, len(sentence), encoder.width)
    assert np.isfinite(got).all()
    empty = [k for k, ids in enumerate(expected) if not ids]
    assert not got[:, empty].any(), "a word that the model does not see is a zero vector"
    before, after = list(encoder.cutter.before), list(encoder.cutter.after)
    flat = [piece for ids in expected for piece in ids]
    counts = [len(ids) for ids in expected]
    begins = np.cumsum([0, *counts])
    windows = cut_windows(counts, encoder.plan, left_only=encoder.context == "left")
    for window in {*windows[::every], *windows[-1:]}:
        run = hidden(MODELS[name], [*before, *flat[window.begin : window.end], *after])
        for w, count in enumerate(counts):
            piece = begins[w] + (count - 1 if encoder.subwords == "last" else 0)
            if count and window.first <= piece < window.last:
                np.testing.assert_allclose(got[:, w], run[:, piece - window.begin + len(before)], atol=1e-4)


@settings(max_examples=25)
@pytest.mark.parametrize("name", MODELS)
@given(sentence=st.lists(words, max_size=12))
def test_words_keep_their_pieces_and_their_places(name: str, sentence: list[str]) -> None:
    check(name, sentence)


@settings(max_examples=15)
@pytest.mark.parametrize("name", MODELS)
@given(sentences=st.lists(st.lists(words, max_size=9), max_size=6), budget=st.integers(1, 40))
def test_batches_change_nothing(name: str, sentences: list[list[str]], budget: int) -> None:
    together = ENCODERS[name].encode_layers(sentences, batch_tokens=budget)
    for got, sentence in zip(together, sentences, strict=True):
        np.testing.assert_allclose(got, ENCODERS[name].encode_layers([sentence])[0], atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_text_of_five_times_the_limit(name: str) -> None:
    text = ["the", "cat", "sat", "on", "the", "playing", "mats", "", "👩‍👩‍👧‍👦", "שלום"] * 40
    assert sum(map(len, ENCODERS[name].cutter.cut(text))) > 5 * transformer_models.LIMIT
    check(name, text)


@pytest.mark.parametrize("name", MODELS)
def test_a_word_of_ten_thousand_characters(name: str) -> None:
    encoder = ENCODERS[name]
    for word in ("a" * 10_000, "猫" * 10_000, "👩‍" * 5_000):
        (got,) = encoder.encode_layers([["the", word, "cat"]])
        assert got.shape == (encoder.depth, 3, encoder.width)
        assert np.isfinite(got).all()
        assert got[:, 1].any()


def test_subwords_to_words() -> None:
    sentence = ["the", "playings", "", "cat"]
    ids = [2, *[p for w in pieces_of("bert", sentence) for p in w], 3]
    run = hidden(BERT, ids)[:, 1:-1]  # (L, 6, D): the, play ##ing ##s, [UNK], cat
    expected = {
        "first": run[:, [0, 1, 4, 5]],
        "last": run[:, [0, 3, 4, 5]],
        "mean": np.stack([run[:, 0], run[:, 1:4].mean(1), run[:, 4], run[:, 5]], 1),
        "first+last": np.concatenate([run[:, [0, 1, 4, 5]], run[:, [0, 3, 4, 5]]], -1),
    }
    for subwords, want in expected.items():
        encoder = Transformer(BERT.network, BERT.tokenizer, device="cpu", subwords=subwords)  # type: ignore[arg-type]
        assert encoder.width == want.shape[-1]
        np.testing.assert_allclose(encoder.encode_layers([sentence])[0], want, atol=1e-5)
    assert ENCODERS["bert"].subwords_of(["playings", ""]) == [["play", "##ing", "##s"], ["[UNK]"]]


def test_what_a_word_sees() -> None:
    one, two = [["the", "cat", "sat"]], [["the", "cat", "mat"]]
    bert, gpt = ENCODERS["bert"], ENCODERS["gpt"]
    assert (bert.context, gpt.context) == ("both", "left")
    assert (bert.subwords, gpt.subwords) == ("first", "last")
    assert "to its left only" in gpt.info
    assert np.abs(bert.encode_layers(one)[0] - bert.encode_layers(two)[0])[-1, 0].max() > 1e-3
    np.testing.assert_allclose(gpt.encode_layers(one)[0][:, :2], gpt.encode_layers(two)[0][:, :2], atol=1e-6)
    np.testing.assert_array_equal(bert.encode_layers(one)[0][0, :2], bert.encode_layers(two)[0][0, :2])


def test_the_layer_strategies_of_the_bert_paper() -> None:
    bert = ENCODERS["bert"]
    sentences = [["the", "cat"], ["playing"]]
    every = bert.encode_layers(sentences)
    assert bert.layer_names == ("embeddings", "layer1", "layer2", "layer3", "layer4")
    for name, want in [
        ("embeddings", [x[0] for x in every]),
        ("second-to-last", [x[3] for x in every]),
        ("last", [x[4] for x in every]),
        ("weighted-last-four", [x[1:].mean(0) for x in every]),
        ("concat-last-four", [np.concatenate(list(x[1:]), -1) for x in every]),
        ("weighted-all", [x[1:].mean(0) for x in every]),
    ]:
        for got, expected in zip(bert.encode_tokens(sentences, layers=name), want, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-5)


def test_number_types_do_not_stay() -> None:
    bert = ENCODERS["bert"]
    exact = bert.encode("the cat")
    assert bert.encode("the cat", dtype="float64").dtype == np.float64
    assert np.abs(bert.encode("the cat", dtype="bfloat16") - exact).max() > 1e-4
    np.testing.assert_array_equal(bert.encode("the cat"), exact)


def test_unknown_words() -> None:
    assert [ENCODERS["bert"].unknown(w) for w in ("the", "", "猫", "theq")] == [False, True, True, False]
    assert [ENCODERS["gpt"].unknown(w) for w in ("the", "", "猫")] == [False, True, False]
    (all_empty,) = ENCODERS["gpt"].encode_layers([["", ""]])
    assert all_empty.shape == (4, 2, 12)
    assert not all_empty.any()
    assert ENCODERS["gpt"].encode_layers([[], []])[1].shape == (4, 0, 12)


def test_windows_by_option() -> None:
    small = Transformer(BERT.network, BERT.tokenizer, device="cpu", window=10, overlap=2)
    assert (small.plan.room, small.plan.overlap) == (8, 2)
    assert small.encode_tokens([["cat"] * 30])[0].shape == (30, 16)
    assert small.fingerprint != ENCODERS["bert"].fingerprint
    with pytest.raises(InputError, match="windows of 99 subwords asked for, but BertModel takes at most 32"):
        Transformer(BERT.network, BERT.tokenizer, window=99)
    with pytest.raises(InputError, match="room for 0 pieces"):
        Transformer(BERT.network, BERT.tokenizer, window=2)
    with pytest.raises(InputError, match="subwords 'middle' not understood; expected first, last"):
        Transformer(BERT.network, BERT.tokenizer, subwords="middle")  # type: ignore[arg-type]


def test_the_longest_input_of_a_roberta() -> None:
    config = transformer_models.transformers.RobertaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=34, pad_token_id=1,
    )  # fmt: skip
    network = transformer_models.transformers.RobertaModel(config)
    tokenizer = transformer_models.bert(limit=1000).tokenizer
    assert longest_input(network, tokenizer) == 32, "its positions are counted from behind the padding"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return BERT.save(tmp_path_factory.mktemp("bert"))


class TestFolders:
    def test_the_same_vectors_come_from_a_folder(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        encoder = Transformer.from_pretrained(folder, device="cpu")
        assert capfd.readouterr() == ("", ""), "the library's bars and notes are kept quiet"
        assert encoder.info.startswith(str(folder))
        np.testing.assert_allclose(encoder.encode("the cat"), ENCODERS["bert"].encode("the cat"), atol=1e-6)
        assert encoder.fingerprint == Transformer.from_pretrained(folder, device="cpu").fingerprint

    def test_weights_that_are_not_there_are_not_made_up(self, folder: Path, tmp_path: Path) -> None:
        import shutil

        from safetensors.torch import load_file, save_file

        broken = Path(shutil.copytree(folder, tmp_path / "broken"))
        tensors = load_file(broken / "model.safetensors")
        del tensors["encoder.layer.1.output.dense.weight"]
        save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(WeightsError, match=r"1 weights of the BertModel are not in the files, 'encoder\.layer\.1"):
            Transformer.from_pretrained(broken)

    def test_pickles_are_not_read(self, folder: Path, tmp_path: Path) -> None:
        import shutil

        pickled = Path(shutil.copytree(folder, tmp_path / "pickled"))
        (pickled / "model.safetensors").unlink()
        torch.save(BERT.network.state_dict(), pickled / "pytorch_model.bin")
        with pytest.raises(WeightsError, match=r"pickled: transformers cannot read it.*pickled ones are not read"):
            Transformer.from_pretrained(pickled)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match="cannot read it"):
            Transformer.from_pretrained(tmp_path)

    def test_without_the_library_the_pip_line_is_told(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'elmokit\[transformers\]'"):
            Transformer.from_pretrained(folder)
