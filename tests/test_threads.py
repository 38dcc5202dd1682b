"""Public objects called from eight threads at once: what comes out is what one thread gets.

Each object is new when the threads start, so that what is built on first use is built under their feet, and its word
cache is far smaller than the vocabulary. In C numbers are equal bit for bit; torch's own kernels may round otherwise.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit import ElmoEmbedding, Features, Joined, Part, Static, Transformer
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.compat.manylangs import Embedder
from elmokit.compat.simple_elmo import ElmoModel
from elmokit.encoders import Elmo, WordTable
from elmokit.encoders.batches import OTHERS, Built
from elmokit.index import Index
from elmokit.index.exact import centred
from elmokit.weights import save_pretrained
from many_threads import (
    IN_C,
    MODEL,
    NEAR,
    WORDS,
    check,
    from_threads,
    jobs,
    language_model_calls,
    same,
    save_tagger,
    tagger_calls,
)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float64"])
def test_elmo(dtype: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr("elmokit.kernels.cpu.inference.c_library", lambda: None)
    exact = compiled and IN_C and dtype != "float64"

    def new() -> Callable[[Any], Any]:
        elmo = Elmo(MODEL.pretrained, device="cpu", dtype=dtype, cache_words=40)
        return lambda batch: elmo.encode_layers(batch)

    check(new, jobs(), near=0 if exact else 1e-3 if dtype == "int8" else NEAR)


def test_elmo_with_other_options_in_each_call() -> None:
    """Number types that push each other out of memory, other layers, inference mode, a cache that is emptied."""
    modes = ["float32", "bfloat16", "int8", "float64"]

    def new() -> Callable[[Any], Any]:
        elmo = Elmo(MODEL.pretrained, device="cpu", cache_words=40)

        def call(given: tuple[int, list[list[str]]]) -> Any:
            k, batch = given
            if k % 5 == 0:
                elmo.forget_words()
            if k % 3 == 0:
                with torch.inference_mode():
                    return elmo.encode_tokens(batch, dtype=modes[k % 4], layers="all", batch_tokens=7)
            return elmo.encode(batch, dtype=modes[k % 4], layers=("top", "average")[k % 2])

        return call

    assert len(modes) > OTHERS + 1
    check(new, list(enumerate(jobs())), near=1e-3 if not IN_C else NEAR)


def test_static_vectors() -> None:
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32)
    table = WordTable(WORDS, vectors)

    def new() -> Callable[[Any], Any]:
        static = Static(table, device="cpu", unknown="mean")
        return lambda batch: static.encode_tokens([[*tokens, "unheard"] for tokens in batch])

    check(new, jobs(), near=0)


def test_sentences_that_another_thread_makes_with_the_same_encoder() -> None:
    """A call that still reads its sentences keeps no other thread waiting."""
    static = Static(WordTable(WORDS, np.eye(len(WORDS), 5, dtype=np.float32)), device="cpu")

    def sentences() -> Iterator[list[str]]:
        for k in range(3):
            made: list[Any] = []
            other = threading.Thread(target=lambda: made.append(static.encode([["w1"]])), daemon=True)  # noqa: B023
            other.start()
            other.join(timeout=60)
            assert len(made) == 1
            yield [WORDS[k]]

    for call in (static.encode, static.encode_tokens, static.encode_layers):
        same(list(call(sentences())), list(call([[word] for word in WORDS[:3]])), near=0)


@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_transformers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    transformer_models = pytest.importorskip("transformer_models")
    monkeypatch.setattr("elmokit.encoders.transformer._pieces.MOST_WORDS", 20)  # remembered, and often forgotten
    model = getattr(transformer_models, kind)()

    def new() -> Callable[[Any], Any]:
        encoder = Transformer(model.network, model.tokenizer, device="cpu")
        return lambda batch: (encoder.encode_layers(batch), encoder.encode(batch, dtype="float64"))

    check(new, jobs(10))


def test_joined_encoders_and_features() -> None:
    table = WordTable(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32))

    def new() -> Callable[[Any], Any]:
        elmo = Elmo(MODEL.pretrained, device="cpu", cache_words=40)
        parts = [Static(table, device="cpu"), Part(elmo)]
        joined, features = Joined(parts), Features(parts).eval()
        return lambda batch: (joined.encode_tokens(batch), features(batch).vectors.detach())

    check(new, jobs())


def test_elmo_as_a_layer() -> None:
    def new() -> Callable[[Any], Any]:
        embedding = ElmoEmbedding(MODEL.pretrained).eval()
        return lambda batch: embedding(batch).vectors.detach()

    check(new, jobs())


def test_the_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.lm.model.CACHE_WORDS", 20)
    check(lambda: language_model_calls("cpu"), jobs(8), near=1e-4)


def test_task_models(tmp_path: Path) -> None:
    save_tagger(tmp_path)
    check(lambda: tagger_calls(tmp_path, "cpu"), jobs(10))


def test_an_index_that_is_searched_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("usearch")
    monkeypatch.setattr("elmokit.index.growth.CHUNK_TOKENS", 256)
    monkeypatch.setattr("elmokit.index.growth.SEGMENT_ROWS", 100)
    elmo = Elmo(MODEL.pretrained, device="cpu")
    some, more = ([tokens for batch in jobs()[k::2] for tokens in batch] for k in (0, 1))
    Index.build(elmo, some, tmp_path / "index", name="some").make_graph()
    queries = [np.concatenate(elmo.encode_tokens(batch, layers="top"))[:5] for batch in jobs(12) if any(batch)]

    def new() -> Callable[[Any], Any]:
        index = Index.open(tmp_path / "index")

        def call(query: Any) -> Any:
            exact, near = index.search(query, k=7, exact=True), index.search(query, k=3)
            rows = index.rows_of(index.spelled("W7")[0])
            return exact.scores, near.rows, index.words["w7"], rows, asdict(index.occurrence(int(rows[0])))

        return call

    check(new, queries)

    grown = Index.open(tmp_path / "index")
    before, searching, ready = grown.search(queries[0], k=5, exact=True), threading.Event(), threading.Event()
    real, found = centred, []

    def slow(vectors: Any, mean: Any) -> Any:
        """The first step of a search, during which another thread adds text."""
        searching.set()
        assert ready.wait(60)
        return real(vectors, mean)

    with monkeypatch.context() as patch:
        patch.setattr("elmokit.index.index.centred", slow)
        thread = threading.Thread(target=lambda: found.append(grown.search(queries[0], k=5, exact=True)))
        thread.start()
        assert searching.wait(60)
        grown.grow(elmo, more, name="more")
        ready.set()
        thread.join()
    after = grown.search(queries[0], k=5, exact=True)
    assert not np.array_equal(before.scores, after.scores)
    same(found[0], before, near=0)  # one state, not a mixture of two


def test_exported_models(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from elmokit.export.save import export_onnx
    from elmokit.integrations.onnx import OnnxElmo

    export_onnx(MODEL.pretrained, tmp_path)

    def new() -> Callable[[Any], Any]:
        light = OnnxElmo(tmp_path, threads=1)
        return lambda batch: (light.encode_tokens(batch), light.encode(" ".join(batch[0])))

    check(new, jobs(12))


@pytest.mark.parametrize("tool", ["allennlp", "manylangs", "simple_elmo"])
def test_the_older_tools_names(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.compat.allennlp.embedder.CACHE_WORDS", 40)
    folder = save_pretrained(MODEL.pretrained, tmp_path / "model")

    def new() -> Callable[[Any], Any]:
        if tool == "allennlp":
            embedder = ElmoEmbedder(folder, stateful=False)
            return lambda batch: embedder.embed_batch(batch)
        if tool == "manylangs":
            other = Embedder(folder)
            return lambda batch: other.sents2elmo(batch, output_layer=-2)
        model = ElmoModel()
        model.load(folder)
        return lambda batch: model.get_elmo_vectors(batch, layers="all")

    check(new, jobs(12))


def test_a_model_is_built_once_however_many_ask() -> None:
    made: list[tuple[Any, Any]] = []
    place = torch.device("cpu"), torch.float32

    def build(device: torch.device, dtype: torch.dtype) -> Any:
        made.append((device, dtype))
        return object()

    built = Built()
    found = from_threads(lambda at: built.find(at, build, home=place), [place] * 5)
    assert len(made) == 1
    assert len({id(runner) for part in found for runner in part}) == 1


def test_a_thread_may_outlive_the_main_one(tmp_path: Path) -> None:
    """Python starts no more threads then, and this one does all of the work."""
    save_pretrained(MODEL.pretrained, tmp_path)
    program = """
import sys, threading, time, torch
torch.set_num_threads(2)
from elmokit import Elmo
elmo = Elmo.from_pretrained(sys.argv[1], device="cpu")
def late():
    time.sleep(0.2)
    print(elmo.encode([["a", "b"] * 9] * 20).shape)
threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(20, 16)\n", "")
