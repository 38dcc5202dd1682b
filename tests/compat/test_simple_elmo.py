"""`ElmoModel`: simple_elmo's vectors without its faults."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from official_files import Files, write_official

import models
import reference
from elmokit.compat.simple_elmo import ElmoModel
from elmokit.errors import InputError, WeightsError

S = [["The", "cat", "sat", "on", "the", "mat", "."], ["Hi"], ["naïve", "x" * 60, "<S>", ""]]


def loaded(files: Files, **options: Any) -> ElmoModel:
    model = ElmoModel()
    assert model.load(files.folder, **options) == "The model is now loaded."
    return model


def expected(files: Files, batch_size: int, *, warmup: bool) -> list[Any]:
    """Layers (L, T, D) of each text: state carried by row, the first batch once before where it warms up."""
    batches = [S[k : k + batch_size] for k in range(0, len(S), batch_size)]
    found = files.run([batches[0], *batches] if warmup else batches)
    return [layers for batch in found[1 if warmup else 0 :] for layers in batch]


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_vectors(files: Files, batch_size: int, warmup: bool) -> None:
    model = loaded(files, max_batch_size=batch_size)
    wanted = expected(files, batch_size, warmup=warmup)
    for layers, pick in (("average", lambda x: x.mean(axis=0)), ("top", lambda x: x[-1]), ("all", lambda x: x)):
        for _ in range(2):  # each call starts from zero again
            got = model.get_elmo_vectors(S, warmup=warmup, layers=layers)
        assert got.dtype == np.float64
        assert got.shape == ((3, 3, 7, 12) if layers == "all" else (3, 7, 12))
        for row, stack, tokens in zip(got, wanted, S, strict=True):
            np.testing.assert_allclose(row[..., : len(tokens), :], pick(stack), rtol=0, atol=1e-5)
            assert not row[..., len(tokens) :, :].any(), "padding is zero"


def test_pooled_over_words_alone_and_layers_in_order(files: Files) -> None:
    model = loaded(files)
    wanted = expected(files, 32, warmup=True)
    for layers, pick in (("average", lambda x: x.mean(axis=0)), ("top", lambda x: x[-1]), ("all", lambda x: x)):
        got = model.get_elmo_vector_average(S, layers=layers)
        assert got.shape == ((3, 3, 12) if layers == "all" else (3, 12))
        for row, stack in zip(got, wanted, strict=True):
            mean = pick(stack).mean(axis=-2)
            np.testing.assert_allclose(row, mean / np.linalg.norm(mean), rtol=0, atol=1e-5)


def test_stateless(files: Files) -> None:
    model = ElmoModel(stateful=False)
    model.load(files.folder, max_batch_size=1)
    for row, tokens in zip(model.get_elmo_vectors(S, layers="all"), S, strict=True):
        np.testing.assert_allclose(row[:, : len(tokens)], files.tiny.embed(tokens), rtol=0, atol=1e-5)


def test_nothing_to_embed(files: Files) -> None:
    model = loaded(files)
    assert model.get_elmo_vectors([]).shape == (0, 0, 12)
    assert model.get_elmo_vector_average([]).shape == (0, 12)
    assert model.get_elmo_vectors([[]]).shape == (1, 0, 12)
    assert not model.get_elmo_vector_average([S[0], []])[1].any()
    assert not model.get_elmo_vector_average([[]], layers="all").any()


def test_what_a_model_says_of_itself(files: Files) -> None:
    model = loaded(files, max_batch_size=7, limit=3)
    assert (model.batch_size, model.max_chars, model.vector_size, model.n_layers, model.vocab) == (7, 50, 12, 3, None)


def test_refused(files: Files, tmp_path: Path) -> None:
    model = ElmoModel()
    with pytest.raises(InputError, match=r"call load\(path\) first"):
        model.get_elmo_vectors(S)
    with pytest.raises(WeightsError, match="nowhere"):
        model.load(tmp_path / "nowhere")
    model.load(files.folder)
    with pytest.raises(InputError, match="'middle'; expected one of average, top, all"):
        model.get_elmo_vectors(S, layers="middle")
    with pytest.raises(InputError, match="'middle'; expected one of average, top, all"):
        model.get_elmo_vector_average([], layers="middle")
    with pytest.raises(InputError, match="full=True"):
        model.get_elmo_substitutes(["a b"])
    with pytest.raises(WeightsError, match="output layer"):
        model.load(files.folder, full=True)


def test_substitutes(tmp_path: Path) -> None:
    options = models.tiny_options(n_tokens_vocab=len(models.WORDS))
    weights = reference.random_official(np.random.default_rng(3), options, softmax=True)
    files = write_official(tmp_path / "lm", models.Tiny(weights, options, models.translate(weights, options)))
    (files.folder / "vocab.txt").write_text("\n".join(models.WORDS) + "\n")
    model = loaded(files, full=True)
    assert model.vocab == models.WORDS
    assert model.vocab.size == len(models.WORDS)
    assert model.vocab.word_to_id("cat") == models.WORDS.index("cat")
    assert model.vocab.word_to_id("zebra") == model.vocab.unk == 2
    assert model.vocab.id_to_word(3) == models.WORDS[3]
    assert model.vocab.decode(model.vocab.encode("the zebra")) == "<S> the <UNK> </S>"
    assert model.vocab.encode(["the"], reverse=True, split=False)[0] == model.vocab.eos == 1
    found = model.get_elmo_substitutes(["the cat sat", ""], topn=2)
    assert [len(text) for text in found] == [3, 0]
    assert [place["word"] for place in found[0]] == ["the", "cat", "sat"]
    top = reference.embed(weights, options, ["the", "cat", "sat"])[0][-1]  # (5, 12)
    for side, hidden in (("forward", top[1, :6]), ("backward", top[3, 6:])):
        scores = weights["softmax/W"].astype(np.float64) @ hidden + weights["softmax/b"]
        logp = scores - np.log(np.exp(scores).sum())
        best = [k for k in np.argsort(-logp) if k > 1]  # without boundaries
        place = found[0][1][side]
        assert place["candidates"] == best[:2]
        assert place["candidate_words"] == [models.WORDS[k] for k in best[:2]]
        assert all(math.isclose(a, b, abs_tol=2e-4) for a, b in zip(place["logp"], logp[best], strict=False))
        # A program that wants the word's own score asks for all words and takes the one with its number.
        place = model.get_elmo_substitutes(["the cat sat"], topn=model.vocab.size)[0][1][side]
        assert sorted(place["candidates"]) == list(range(model.vocab.size))
        own = place["candidates"].index(model.vocab.word_to_id("cat"))
        assert place["candidate_words"][own] == "cat"
        assert math.isclose(place["logp"][own], logp[models.WORDS.index("cat")], abs_tol=2e-4)
        in_order = np.array(place["logp"])[np.argsort(place["candidates"])]
        np.testing.assert_allclose(in_order[2:], logp[2:], rtol=0, atol=2e-4)
        assert np.isneginf(in_order[:2]).all()
        open_ended = model.get_elmo_substitutes(["the cat sat"], topn=999, nodelimiters=False)[0][1][side]
        np.testing.assert_allclose(np.exp(open_ended["logp"]).sum(), 1, atol=2e-3)
        assert "</S>" in open_ended["candidate_words"]
    with pytest.raises(InputError, match="topn is 0"):
        model.get_elmo_substitutes(["a"], topn=0)


@pytest.mark.parametrize("wrong", [["the", None], ["the", 3], None])
def test_what_is_no_token_is_named(files: Files, wrong: Any) -> None:
    for stateful in (True, False):
        model = loaded(files)
        model.stateful = stateful
        with pytest.raises(InputError, match=r"sentence 1 is .*; expected a (string|list of tokens)"):
            model.get_elmo_vectors([["a"], wrong])
        with pytest.raises(InputError, match="sentence 0 is"):
            model.get_elmo_vector_average([wrong])
