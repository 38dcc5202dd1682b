"""Public objects called from eight threads at once: what comes out is what one thread gets.

Each object is new when the threads start, so that what is built on first use is built under their feet, and its word
cache is far smaller than the vocabulary. In C numbers are equal bit for bit; torch's own kernels may round otherwise.
"""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import models
from elmokit import ElmoEmbedding, Features, Joined, Part, Static, Tagger, Transformer
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.compat.manylangs import Embedder
from elmokit.compat.simple_elmo import ElmoModel
from elmokit.encoders import Elmo, WordTable
from elmokit.encoders.batches import OTHERS, Built
from elmokit.index import Index
from elmokit.index.exact import centred
from elmokit.kernels.cpu.c import c_library
from elmokit.lm import LanguageModel
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import NER, TaggedExample
from elmokit.text import Sentence
from elmokit.weights import save_pretrained
from elmokit.weights.pretrained import SoftmaxTensors

THREADS = 8
NEAR = 1e-5  # what torch's kernels may make of a batch
WORDS = [f"w{k}" for k in range(300)]
VOCABULARY = ("<S>", "</S>", "<UNK>", *WORDS[:60])
MODEL = models.tiny(models.tiny_options(lstm={"dim": 16, "projection_dim": 8}))
IN_C = c_library() is not None


def jobs(n: int = 16) -> list[list[list[str]]]:
    """Batches of one to twelve sentences of no to thirty words."""
    draw = random.Random(1)
    return [
        [[draw.choice(WORDS) for _ in range(draw.choice([0, 1, 4, 30]))] for _ in range(draw.choice([1, 2, 12]))]
        for _ in range(n)
    ]


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Threads of Python change over every 10 microseconds instead of every 5 milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def from_threads(call: Callable[[Any], Any], given: Sequence[Any], *, threads: int = THREADS) -> list[list[Any]]:
    """What each thread gets for everything given, all begun at once, each in an order of its own."""
    start = threading.Barrier(threads)
    found: list[list[Any]] = [[None] * len(given) for _ in range(threads)]
    errors: list[BaseException] = []

    def work(thread: int) -> None:
        order = random.Random(thread).sample(range(len(given)), len(given))
        start.wait()
        try:
            for k in order:
                found[thread][k] = call(given[k])
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return found


def check(new: Callable[[], Callable[[Any], Any]], given: Sequence[Any], *, near: float = NEAR) -> None:
    """`new()` makes an object and returns the call under test."""
    alone = new()
    expected = [alone(one) for one in given]
    shared = new()
    for found in from_threads(shared, given):
        for got, want in zip(found, expected, strict=True):
            same(got, want, near=near)
    for one, want in zip(given, expected, strict=True):  # and it is not spoilt for those who come later
        same(shared(one), want, near=near)


def same(got: Any, want: Any, *, near: float) -> None:
    """Equal, numbers to `near`; 0 is bit for bit."""
    if is_dataclass(want) and not isinstance(want, Sentence):
        got, want = asdict(got), asdict(want)
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key], near=near)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b, near=near)
    elif isinstance(want, np.ndarray | torch.Tensor | float):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=near)
    else:
        assert got == want


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


def language_model_calls(device: str) -> Callable[[Any], Any]:
    source = torch.Generator().manual_seed(5)
    softmax = SoftmaxTensors(
        torch.randn(len(VOCABULARY), 8, generator=source), torch.randn(len(VOCABULARY), generator=source)
    )
    pretrained = replace(MODEL.pretrained, vocabulary=VOCABULARY, softmax=softmax)
    lm = LanguageModel(pretrained, device=device)

    def call(batch: list[list[str]]) -> Any:
        words = [token for tokens in batch for token in tokens][:9]
        blank = lm.fill([*words[:4], "___", *words[4:]], n=3)
        drawn = [lm.sample(words, direction=way, n_words=6, seed=3) for way in ("forward", "backward")]
        return lm.score(batch), lm.next_words(words, n=3), blank, [sample.tokens for sample in drawn]

    return call


def test_the_language_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.lm.model.CACHE_WORDS", 20)
    check(lambda: language_model_calls("cpu"), jobs(8), near=1e-4)


def save_tagger(folder: Path) -> None:
    tags = ("B-X", "O", "B-Y", "I-Y")
    examples = [
        TaggedExample(Sentence.of(tokens[:4]), tags[: len(tokens)], "IOB2")
        for batch in jobs()
        for tokens in batch
        if len(tokens) == 4
    ]
    small = {"word_dim": 4, "char_dim": 2, "char_filters": "2:4", "hidden": 4, "layers": 1, "epochs": 1}
    setup = load_setup(NER, flags={**small, "elmo_at": "both"})
    encoder = Elmo(MODEL.pretrained, device="cpu", cache_words=40)
    train_task(NER, setup, examples, examples[:4], encoder=encoder, device="cpu").save(folder)


def tagger_calls(folder: Path, device: str) -> Callable[[Any], Any]:
    elmo = Elmo(MODEL.pretrained, device=device, cache_words=20)
    tagger = Tagger.from_pretrained(folder, encoder=elmo, device=device)
    return lambda batch: [
        [found.tags for found in part] for part in tagger.predict([" ".join(tokens) for tokens in batch])
    ]


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


KINDS = (
    *("elmo", "two types", "forgetful", "several", "joined", "layer", "embedder"),
    *("language model", "tagger", "bert", "gpt"),
)


def on_device(kind: str, folder: Path, device: str) -> Callable[[Any], Any]:
    """An object on this device, and the call under test."""
    if kind == "language model":
        return language_model_calls(device)
    if kind == "tagger":
        return tagger_calls(folder, device)
    if kind in ("bert", "gpt"):
        model = getattr(pytest.importorskip("transformer_models"), kind)()
        encoder = Transformer(model.network, model.tokenizer, device=device)
        return lambda batch: encoder.encode_layers(batch)
    if kind == "embedder":
        embedder = ElmoEmbedder(folder, stateful=False, cuda_device=0 if device == "cuda" else -1)
        return lambda batch: embedder.embed_batch(batch)
    elmo = Elmo(MODEL.pretrained, device=device, cache_words=40)
    if kind == "elmo":
        return lambda batch: elmo.encode_layers(batch)
    if kind == "two types":  # the second is built by whichever thread comes first
        return lambda batch: (elmo.encode_tokens(batch), elmo.encode(batch, dtype="float64"))
    if kind == "forgetful":

        def call(batch: list[list[str]]) -> Any:
            if len(batch) == 1:
                elmo.forget_words()
            return elmo.encode_layers(batch)

        return call
    if kind == "several":  # graphs of several models are recorded at the same time
        others = [elmo, *(Elmo(MODEL.pretrained, device=device, cache_words=40) for _ in range(3))]
        return lambda batch: others[sum(map(len, batch)) % 4].encode_layers(batch)
    if kind == "layer":
        embedding = ElmoEmbedding(MODEL.pretrained).eval().to(device)
        return lambda batch: embedding(batch).vectors.detach().cpu()
    assert kind == "joined"
    table = WordTable(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32))
    parts = [Static(table, device=device), Part(elmo)]
    joined, features = Joined(parts), Features(parts).eval().to(device)
    return lambda batch: (joined.encode_tokens(batch), features(batch).vectors.detach().cpu())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_on_cuda(kind: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are recorded and replayed while others do the same, in one stream or each in its own."""
    monkeypatch.setattr("elmokit.lm.model.CACHE_WORDS", 20)
    monkeypatch.setattr("elmokit.compat.allennlp.embedder.CACHE_WORDS", 40)
    if kind == "tagger":
        save_tagger(tmp_path)
    elif kind == "embedder":
        save_pretrained(MODEL.pretrained, tmp_path)

    def new() -> Callable[[Any], Any]:
        call, own = on_device(kind, tmp_path, "cuda"), threading.local()

        def in_own_stream(batch: list[list[str]]) -> Any:
            own.stream = getattr(own, "stream", None) or torch.cuda.Stream()
            with torch.cuda.stream(own.stream):
                return call(batch)

        return in_own_stream if streams else call

    # Small ones, for which graphs are recorded, and larger ones.
    small = [batch for batch in jobs(60) if len(batch) <= 2 or not any(len(tokens) > 4 for tokens in batch)]
    number = {"elmo": 40, "several": 24, "language model": 5}.get(kind, 12)
    check(new, [*small[:number], *jobs(3)], near=1e-4)
