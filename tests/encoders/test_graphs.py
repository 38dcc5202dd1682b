"""Batches filled up to a graph's shape give what the batch itself gives; the graphs themselves where there is CUDA."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.batch import index_words
from elmokit.encoders import Elmo
from elmokit.encoders.graphs import MOST_GRAPHS, MOST_ROWS, MOST_STEPS, Filled, Graphs, bucket, filled_layers
from elmokit.text import Sentence

MODELS = {"both": models.tiny(), "backward": models.tiny(directions=(1,)), "words": models.tiny_words()}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=12), min_size=1, max_size=9), st.sampled_from(list(MODELS)))
def test_filling_changes_nothing(text: list[list[str]], name: str) -> None:
    runner = Elmo(MODELS[name].pretrained, device="cpu", dtype="float64").placed()
    words, index, lengths = index_words([Sentence.of(tokens) for tokens in text])
    with torch.no_grad():
        vectors = runner.word_vectors(words)
        expected, _ = runner.bilm.contextualise(vectors, torch.from_numpy(index), lengths)
        backward = tuple(d == "backward" for d in runner.bilm.config.directions)
        batch = Filled.of(index, lengths, backward=backward)
        values = filled_layers(runner.bilm, vectors, torch.from_numpy(batch.table), batch.rows, batch.steps)
    B, T = index.shape
    assert (batch.rows, batch.steps) == bucket(B, T)
    torch.testing.assert_close(values[:, :B, :T], expected.values, rtol=0, atol=1e-12)
    assert not values[:, B:].any()
    assert not values[:, :, T:].any()
    np.testing.assert_array_equal(batch.table[-1].reshape(batch.rows, -1)[:B, :T] == 1, expected.mask)


def test_shapes_are_few() -> None:
    shapes = {bucket(rows, steps) for rows in range(1, MOST_ROWS + 1) for steps in range(2, MOST_STEPS + 1)}
    assert len(shapes) == 6 * 8
    assert all(bucket(*shape) == shape for shape in shapes)


def test_only_small_batches_are_taken() -> None:
    def take(rows: int, tokens: int) -> bool:
        return Graphs.take([Sentence.of(["w"] * tokens)] * rows)

    assert take(1, 0)
    assert take(MOST_ROWS, MOST_STEPS - 2)
    assert not take(MOST_ROWS + 1, 3)
    assert not take(1, MOST_STEPS - 1)
    assert not take(0, 3)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_graphs_give_what_runs_without_them_give(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_GRAPHS", "1")
    elmo = Elmo(MODELS["both"].pretrained, device="cuda", dtype=dtype)
    text = [Sentence.of(["a", "bc", "def"] * n) for n in (1, 2, 5, 3)]
    for batch in (text, text[:1], text[1:], text):
        expected = elmo.placed().layers(batch)[0].values
        found = elmo.run(batch).values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if dtype == "float32" else 0.03)
    with torch.inference_mode():
        elmo.run(text)
    elmo.run(text)


@pytest.mark.gpu
@needs_cuda
def test_the_number_of_graphs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_GRAPHS", "1")
    elmo = Elmo(MODELS["both"].pretrained, device="cuda")
    for rows in (1, 2, 4, 8):
        for tokens in range(1, 62, 8):
            elmo.run([Sentence.of(["a"] * tokens)] * rows)
    assert len(elmo.placed().graphs.known) == MOST_GRAPHS
