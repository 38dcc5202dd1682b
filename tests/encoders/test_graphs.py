"""Batches filled up to a graph's shape give what the batch itself gives; the graphs themselves where there is CUDA."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from elmokit.batch import index_words
from elmokit.encoders import Elmo
from elmokit.encoders.elmo._cuda_graphs import (
    MIN_WORDS,
    MOST_GRAPHS,
    MOST_ROWS,
    MOST_STEPS,
    MOST_WORDS,
    CudaGraphs,
    Filled,
    Recurring,
    bucket,
    filled_layers,
    filled_words,
    wanted,
)
from elmokit.errors import ConfigError, ElmokitWarning
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
        return CudaGraphs.take([Sentence.of(["w"] * tokens)] * rows)

    assert take(1, 0)
    assert take(MOST_ROWS, MOST_STEPS - 2)
    assert not take(MOST_ROWS + 1, 3)
    assert not take(1, MOST_STEPS - 1)
    assert not take(0, 3)


@given(st.integers(1, MOST_WORDS), st.sampled_from(list(MODELS)))
def test_filling_words_up_changes_nothing(n: int, name: str) -> None:
    runner = Elmo(MODELS[name].pretrained, device="cpu", dtype="float64").placed()
    rows = runner.codec.encode([f"{'ab' * (k % 5)}{k}" for k in range(n)])
    filled = filled_words(rows, runner.codec.begin)
    assert len(filled) == (MIN_WORDS if n <= MIN_WORDS else MOST_WORDS)
    assert filled.dtype == rows.dtype
    with torch.no_grad():
        found, expected = (runner.bilm.tokens(torch.from_numpy(given)) for given in (filled, rows))
    torch.testing.assert_close(found[:n], expected, rtol=0, atol=1e-12)


def test_graphs_are_on_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMOKIT_GRAPHS", raising=False)
    assert wanted()
    for value, expected in (("1", True), ("0", False), ("", True)):
        monkeypatch.setenv("ELMOKIT_GRAPHS", value)
        assert wanted() == expected
    monkeypatch.setenv("ELMOKIT_GRAPHS", "off")
    with pytest.raises(ConfigError, match="'off', expected '0'"):
        wanted()


def test_only_what_recurs_is_made_and_the_oldest_leaves() -> None:
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    kept: Recurring[str, str] = Recurring(2)
    assert [kept.find(key, lambda key=key: make(key)) for key in "abaabb"] == [None, None, "A", "A", "B", "B"]
    kept.find("a", lambda: make("a"))  # now used after b
    kept.find("c", lambda: make("c"))
    assert kept.find("c", lambda: make("c")) == "C"
    assert list(kept.known) == ["a", "c"]
    assert kept.find("b", lambda: make("b")) == "B", "one that had left is made at once when it is back"
    assert made == ["a", "b", "c", "b"]


@pytest.mark.parametrize("name", list(MODELS))
def test_a_graph_that_cannot_be_recorded_is_done_without(name: str) -> None:
    elmo = Elmo(MODELS[name].pretrained, device="cpu")
    runner, text = elmo.placed(), [Sentence.of(["a", "bc"]), Sentence.of(["c"])]
    expected = runner.stack(text).values
    runner.graphs = graphs = CudaGraphs(runner.bilm, filling=runner.codec.begin)
    elmo.forget_words()
    assert torch.equal(elmo.run(text).values, expected), "the first time goes without"
    assert bucket(2, 4) in graphs.kept.once

    def short() -> None:
        raise torch.OutOfMemoryError("no room")

    with pytest.warns(ElmokitWarning, match="running without: no room"):
        assert graphs._find(bucket(2, 4), short) is None
    for _ in range(2):
        elmo.forget_words()
        assert torch.equal(elmo.run(text).values, expected)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_graphs_give_what_runs_without_them_give(dtype: str) -> None:
    elmo = Elmo(MODELS["both"].pretrained, device="cuda", dtype=dtype)
    text = [Sentence.of(["a", "bc", "def"] * n) for n in (1, 2, 5, 3)]
    for batch in (text, text[:1], text[1:], text) * 3:  # without, recorded, replayed
        elmo.forget_words()
        found = elmo.run(batch).values
        expected = elmo.placed().layers(batch)[0].values
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if dtype == "float32" else 0.03)
    graphs = elmo.placed().graphs
    assert not graphs.failed
    assert {(MIN_WORDS,), bucket(4, 17), bucket(1, 5)} <= set(graphs.kept.known)
    with torch.inference_mode():
        elmo.run(text)
    elmo.run(text)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", list(MODELS))
def test_new_words_are_replayed(name: str, dtype: str) -> None:
    runner = Elmo(MODELS[name].pretrained, device="cuda", dtype=dtype).placed()
    for n in (1, 20, MIN_WORDS, MIN_WORDS + 1, MOST_WORDS):
        rows = runner.codec.encode([f"{'ab' * (k % 5)}{k}" for k in range(n)])
        with torch.no_grad():
            expected = runner.bilm.tokens(torch.from_numpy(rows).cuda())
            found = [runner.graphs.encode(rows) for _ in range(3)]
        torch.testing.assert_close(found[-1], expected, rtol=0, atol=1e-5 if dtype == "float32" else 0.03)
        assert torch.equal(found[-1], found[-2])
    assert runner.graphs.encode(runner.codec.encode(["a"] * (MOST_WORDS + 1))) is None
    assert not runner.graphs.failed


@pytest.mark.gpu
@needs_cuda
def test_the_number_of_graphs_is_bounded() -> None:
    elmo = Elmo(MODELS["both"].pretrained, device="cuda")
    for rows in (1, 2, 4, 8):
        for tokens in range(1, 62, 8):
            for _ in range(2):
                elmo.run([Sentence.of(["a"] * tokens)] * rows)
    assert len(elmo.placed().graphs.kept.known) == MOST_GRAPHS
