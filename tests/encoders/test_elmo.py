"""`Elmo`: what comes out for what goes in."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import models
from elmokit.encoders import Elmo
from elmokit.errors import InputError
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence
from elmokit.weights import TokenizerSpec

SENTENCES = [["The", "cat", "sat", "."], [], ["a"], ["The", "mat", "", "on", "the", "mat"]]


@pytest.fixture(scope="module")
def model() -> models.Tiny:
    return models.tiny()


@pytest.fixture(scope="module")
def elmo(model: models.Tiny) -> Elmo:
    return Elmo(model.pretrained, device="cpu")


def test_layers_equal_the_reference(model: models.Tiny, elmo: Elmo) -> None:
    for got, tokens in zip(elmo.encode_layers(SENTENCES), SENTENCES, strict=True):
        assert got.dtype == np.float32
        assert got.shape == (3, len(tokens), 12)
        np.testing.assert_allclose(got, model.embed(tokens), atol=1e-5)


def test_float64_equals_the_reference_exactly(model: models.Tiny, elmo: Elmo) -> None:
    for got, tokens in zip(elmo.encode_layers(SENTENCES, dtype="float64"), SENTENCES, strict=True):
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, model.embed(tokens), atol=1e-12)
    again = elmo.encode_layers(SENTENCES)[0]
    assert again.dtype == np.float32, "a number type asked for once must not stay"


def test_half_precision_comes_out_as_float32_and_near(elmo: Elmo) -> None:
    exact, rough = elmo.encode(SENTENCES), elmo.encode(SENTENCES, dtype="bfloat16")
    assert rough.dtype == np.float32
    np.testing.assert_allclose(rough, exact, atol=0.05)


def test_pooling_counts_real_tokens_only(elmo: Elmo) -> None:
    tokens, pooled = elmo.encode_tokens(SENTENCES), elmo.encode(SENTENCES)
    assert pooled.shape == (4, 12)
    assert not pooled[1].any(), "an empty sentence has a zero vector"
    for k in (0, 2, 3):
        np.testing.assert_allclose(pooled[k], tokens[k].mean(axis=0), atol=1e-6)


def test_no_sentences_at_all(elmo: Elmo) -> None:
    assert elmo.encode([]).shape == (0, elmo.width)
    assert elmo.encode_tokens([]) == []
    assert elmo.run([]).values.shape == (elmo.depth, 0, 0, elmo.width)


def test_empty_sentence_has_no_rows_and_empty_token_keeps_its_place(elmo: Elmo) -> None:
    tokens = elmo.encode_tokens(SENTENCES)
    assert [t.shape for t in tokens] == [(4, 12), (0, 12), (1, 12), (6, 12)]


def test_one_string_gives_its_own_answer(elmo: Elmo) -> None:
    assert elmo.encode("A cat.").shape == (12,)
    assert elmo.encode_tokens("A cat.").shape == (3, 12)
    assert elmo.encode_layers("A cat.").shape == (3, 3, 12)
    np.testing.assert_array_equal(elmo.encode_tokens("A cat."), elmo.encode_tokens(Sentence.of(["A", "cat", "."])))


def test_every_way_of_giving_the_same_sentences(elmo: Elmo, tmp_path: Path) -> None:
    strings = ["The cat sat.", "", "A mat."]
    tokens = [["The", "cat", "sat", "."], [], ["A", "mat", "."]]
    expected = elmo.encode(strings)
    (tmp_path / "lines.txt").write_text("The cat sat.\n\nA mat.\n")
    given = [
        tokens,
        tuple(strings),
        (s for s in strings),
        map(tuple, tokens),
        [Sentence.of(t) for t in tokens],
        np.array(strings),
        tmp_path / "lines.txt",
    ]
    for sentences in given:
        np.testing.assert_allclose(elmo.encode(sentences), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a string", ["a", "list"]], "sentence 1 is a list of tokens, but those before it are each a string"),
        ([["a", 3]], "token 1 of sentence 0 is int 3"),
        ([[["a"]]], "one list level less"),
        ([None], "sentence 0 is NoneType"),
        ({"text": "a"}, "cannot embed dict"),
        ({"a", "b"}, "cannot embed set"),
        (b"bytes", "cannot embed bytes"),
        (7, "cannot embed int 7; expected a string, a list of strings"),
    ],
)
def test_wrong_input_is_named(elmo: Elmo, given: object, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", "\\(")):
        elmo.encode(given)  # type: ignore[arg-type]


def test_a_table_is_refused_and_its_columns_work(elmo: Elmo) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    texts, tokens = ["A cat.", "The mat."], [["A", "cat", "."], ["The", "mat", "."]]
    table = pyarrow.table({"id": [1, 2], "text": texts, "words": tokens})
    with pytest.raises(InputError, match=r'a table .Table with columns id, text, words.* encode\(table\["text"\]\)'):
        elmo.encode(table)
    with pytest.raises(InputError, match=r'encode\(table\["id"\]\)'):
        elmo.encode(table.select(["id"]))
    for column in (table["text"].to_pylist(), table["words"].to_pylist()):
        np.testing.assert_allclose(elmo.encode(column), elmo.encode(texts), atol=1e-6)


class Frame(dict[str, list[str]]):
    """As tables of pandas are: iterating one gives its columns' names."""

    columns = ("text", "label")


def test_a_data_frame_is_refused(elmo: Elmo) -> None:
    frame: Any = Frame(text=["A cat."], label=["x"])
    assert list(frame) == ["text", "label"]
    with pytest.raises(InputError, match=r'a table .Frame with columns text, label.* encode\(table\["text"\]\)'):
        elmo.encode(frame)


def test_a_data_frame_of_pandas_is_refused_and_a_series_works(elmo: Elmo) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["A cat.", "The mat."], "label": [0, 1]}, index=[7, 9])
    with pytest.raises(InputError, match=r'a table .DataFrame with columns text, label.* encode\(table\["text"\]\)'):
        elmo.encode(frame)
    np.testing.assert_allclose(elmo.encode(frame["text"]), elmo.encode(list(frame["text"])), atol=1e-6)
    assert len(elmo.encode_tokens(frame["text"][:0])) == 0


def test_no_sentences(elmo: Elmo) -> None:
    assert elmo.encode([]).shape == (0, 12)
    assert elmo.encode([], layers="all").shape == (0, 3, 12)
    assert elmo.encode([], layers="concat:1,2").shape == (0, 24)
    assert elmo.encode_tokens([]) == []


def test_choices_of_layers(elmo: Elmo) -> None:
    every = elmo.encode_layers(SENTENCES)
    for spec, expected in [
        ("top", [x[2] for x in every]),
        (0, [x[0] for x in every]),
        ("average", [x.mean(axis=0) for x in every]),
        ("average:1,2", [x[1:].mean(axis=0) for x in every]),
        ("concat:0,2", [np.concatenate([x[0], x[2]], axis=-1) for x in every]),
        ("weights:.5,.25,.25*2", [2 * (x[0] / 2 + x[1] / 4 + x[2] / 4) for x in every]),
        ("all", every),
    ]:
        for got, want in zip(elmo.encode_tokens(SENTENCES, layers=spec), expected, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
    assert elmo.encode_layers(SENTENCES, layers="top")[0].shape == (1, 4, 12)
    assert elmo.encode(SENTENCES, layers="all").shape == (4, 3, 12)


def test_a_trained_mix(elmo: Elmo) -> None:
    mix = ScalarMix(MixConfig(weights=(0.1, 0.7, -1.0), gamma=1.5, dropout=0.5))
    shares = np.exp([0.1, 0.7, -1.0]) / np.exp([0.1, 0.7, -1.0]).sum()
    for got, layers in zip(elmo.encode_tokens(SENTENCES, mix=mix), elmo.encode_layers(SENTENCES), strict=True):
        np.testing.assert_allclose(got, 1.5 * np.einsum("l,ltd->td", shares, layers), atol=1e-6)
    assert mix.training, "the user's own mix is left as it was"
    with pytest.raises(InputError, match="give one of them"):
        elmo.encode(SENTENCES, mix=mix, layers="top")


def test_normalised_vectors_have_length_one(elmo: Elmo) -> None:
    tokens = np.concatenate(elmo.encode_tokens(SENTENCES, normalise=True))
    np.testing.assert_allclose(np.linalg.norm(tokens, axis=1), 1, atol=1e-6)
    lengths = np.linalg.norm(elmo.encode(SENTENCES, normalise=True), axis=1)
    np.testing.assert_allclose(lengths, [1, 0, 1, 1], atol=1e-6)


def test_stream_is_lazy_and_in_order(elmo: Elmo) -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        while True:
            taken += 1
            yield ["word"] * (taken % 7)

    first = [next(stream).sentence.tokens for stream in [elmo.stream(endless(), batch_tokens=64)] for _ in range(50)]  # type: ignore[arg-type]
    assert [len(tokens) for tokens in first] == [(k + 1) % 7 for k in range(50)]
    assert taken < 64 * 64, "reads a bounded window ahead"


def test_progress_goes_to_standard_error(elmo: Elmo, capsys: pytest.CaptureFixture[str]) -> None:
    elmo.encode(["a", "b"], progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert "embedding" in said.err


def test_unknown_options_are_named(model: models.Tiny, elmo: Elmo) -> None:
    with pytest.raises(InputError, match="dtype 'int4' does not fit here; expected auto, default or one of float32"):
        elmo.encode("a", dtype="int4")
    with pytest.raises(InputError, match="device 'tpux' not understood"):
        elmo.encode("a", device="tpux")
    with pytest.raises(InputError, match="batch_tokens is 0"):
        elmo.encode("a", batch_tokens=0)
    with pytest.raises(InputError, match="layer 5, but the model has layers 0 to 2"):
        elmo.encode("a", layers=5)
    with pytest.raises(InputError, match="cache_words is 0"):
        Elmo(model.pretrained, cache_words=0)


def test_an_unknown_option_is_named(elmo: Elmo) -> None:
    for call in (elmo.encode, elmo.encode_tokens, elmo.encode_layers, elmo.stream):
        with pytest.raises(TypeError, match=r"no option 'batch_size'; .* use batch_tokens="):
            call("a", batch_size=32)  # type: ignore[operator]
    with pytest.raises(TypeError, match=r"no option 'layer'\. The options are layers, mix, batch_tokens"):
        elmo.encode("a", layer=1)  # type: ignore[call-overload]


def test_tensors_on_request(elmo: Elmo) -> None:
    for name in ("encode", "encode_tokens", "encode_layers"):
        arrays, tensors = getattr(elmo, name)(SENTENCES), getattr(elmo, name)(SENTENCES, as_tensor=True)
        for array, tensor in zip(arrays, tensors, strict=True):
            assert isinstance(tensor, torch.Tensor)
            np.testing.assert_array_equal(tensor.numpy(), array)
    assert isinstance(elmo.encode("A cat.", as_tensor=True), torch.Tensor)
    assert elmo.encode("A cat.", as_tensor=True).shape == (12,)


def test_similarity_is_the_cosine(elmo: Elmo) -> None:
    texts = ["A cat sat.", "The mat.", "A cat sat on the mat."]
    vectors = elmo.encode(texts, layers="top")
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(elmo.similarity(texts, texts[:2], layers="top"), unit @ unit[:2].T, atol=1e-6)
    one = elmo.similarity(texts[0], texts[1], layers="top")
    assert isinstance(one, float)
    assert one == pytest.approx(unit[0] @ unit[1], abs=1e-6)
    assert elmo.similarity(texts[0], texts).shape == (3,)
    assert elmo.similarity(texts[0], texts[1], layers="top", as_tensor=True) == pytest.approx(one)
    many = [f"the cat {k}" for k in range(60)]
    assert elmo.similarity(many, many).max() <= 1
    with pytest.raises(InputError, match="'all' keep the layers apart"):
        elmo.similarity("a", "b", layers="all")


def test_search_finds_the_most_alike(elmo: Elmo) -> None:
    texts = ["A cat sat.", "The mat.", "A dog ran.", "A cat sat."]
    cosines = elmo.similarity(["The mat.", "A cat sat."], texts)
    found = elmo.search(["The mat.", "A cat sat."], texts, k=3)
    assert [hit.place for hit in found[1][:2]] == [0, 3], "equal ones in the order given"
    for row, hits in zip(cosines, found, strict=True):
        assert [hit.place for hit in hits] == np.argsort(-row, kind="stable")[:3].tolist()
        np.testing.assert_allclose([hit.score for hit in hits], row[[hit.place for hit in hits]], atol=1e-6)
    assert elmo.search("The mat.", texts, k=1)[0].place == 1
    assert len(elmo.search("The mat.", "The mat.")) == 1
    alone = elmo.search([["a"], ["The", "mat", "."]], Sentence.of(["The", "mat", "."]))
    assert [[hit.place for hit in hits] for hits in alone] == [[0], [0]]
    assert alone[0][0].score < alone[1][0].score
    with pytest.raises(InputError, match="k is 0"):
        elmo.search("a", texts, 0)


def test_it_says_what_it_is_and_moves(model: models.Tiny) -> None:
    elmo = Elmo(model.pretrained, device="cpu")
    assert repr(elmo) == "Elmo('a tiny model', 3 x 12, device='cpu', arithmetic='float32')"
    assert elmo.to("cpu", dtype="float64") is elmo
    assert elmo.encode("A cat.").dtype == np.float64
    assert "arithmetic='float64'" in repr(elmo)
    with pytest.raises(InputError, match="dtype 'int4'"):
        elmo.to("cpu", dtype="int4")
    assert elmo.encode("A cat.").dtype == np.float64


class TestTokenizer:
    def test_the_models_own_is_used_and_another_refused(self) -> None:
        named = models.tiny(tokenizer=TokenizerSpec("english", 1)).pretrained
        assert Elmo(named).tokenizer.name == "english"
        with pytest.raises(InputError, match=r"'whitespace' version 1 was given.*trained with 'english' version 1"):
            Elmo(named, tokenizer="whitespace")
        assert Elmo(named, tokenizer="whitespace", allow_other_tokenizer=True).encode_tokens("a cat.").shape == (2, 12)

    def test_a_version_this_elmokit_lacks_stops_text_but_not_tokens(self) -> None:
        elmo = Elmo(models.tiny(tokenizer=TokenizerSpec("english", 99)).pretrained)
        assert elmo.encode_tokens([["a", "cat"]])[0].shape == (2, 12)
        with pytest.raises(InputError, match="version 99"):
            elmo.encode("a cat")

    def test_older_tools_name_none(self, model: models.Tiny) -> None:
        assert Elmo(model.pretrained).tokenizer.name == "english"
        assert Elmo(model.pretrained, tokenizer="whitespace").tokenizer.name == "whitespace"


def test_published_vectors_with_carried_state(shared: Path) -> None:
    folder = shared / "fixtures" / "elmo-skip"
    options = json.loads((folder / "options.json").read_text())
    with h5py.File(folder / "lm_weights.hdf5") as file:
        arrays: dict[str, np.ndarray] = {}
        file.visititems(lambda name, item: arrays.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None)
    elmo = Elmo(models.translate(arrays, options))
    rows = json.loads((folder / "sentences.json").read_text())
    rows = [[s.split() if isinstance(s, str) else s for s in row] for row in rows]
    session = elmo.carry()
    made = [session.encode_layers([row[k] for row in rows], layers="top") for k in range(10)]
    for r in range(3):
        with h5py.File(folder / f"lm_embeddings_{r}.hdf5") as file:
            for k in range(10):
                stored = file[str(k)][...]  # (2, T, 16)
                np.testing.assert_allclose(made[k][r][0], np.concatenate(list(stored), axis=-1), atol=2e-6)
    words = (folder / "vocab_test.txt").read_text(encoding="utf-8").split()
    with h5py.File(folder / "elmo_token_embeddings.hdf5") as file:
        stored = file["embedding"][...]
    got = elmo.encode_tokens([words], layers=0)[0]
    np.testing.assert_allclose(got[:, :16], stored, atol=2e-6)
