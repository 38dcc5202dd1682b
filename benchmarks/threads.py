"""Throughput of one object called from several threads, beside one thread's.

    python benchmarks/threads.py [--threads 8] [--words 40000] [--rounds 5] [--only NAME ...]

The requests are lists of 1 to 32 sentences of 1 to 40 words, words drawn by frequency from the bundled model's
vocabulary. Each round runs all requests by one thread and then by all threads, with empty word caches, and again until
one thread is busy for 0.2 seconds; the clock starts when all threads have. The ratio is taken within a round, and the
median counts. "CPU" is the processors' time for the same work, as a multiple of one
thread's: what waiting for each other costs, on a busy machine too. Exits with 1 where the threads get less done than
one (ratio below 0.95). "Python alone" holds the interpreter all the time: what its hand-over costs whatever is called.
"""

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit import Elmo, LanguageModel, Static
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.encoders import WordTable
from elmokit.export.save import export_onnx
from elmokit.index import Index
from elmokit.integrations.onnx import OnnxElmo
from elmokit.kernels.cpu.c import c_library
from elmokit.lite import LiteElmo
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.tasks.tagging.task import NER, TaggedExample
from elmokit.text import Sentence
from elmokit.weights import load_pretrained

LEAST = 0.95
SHORTEST = 0.2  # seconds of a round at least
Request = list[list[str]]
Call = Callable[[Request], Any]


def requests(words: int) -> list[Request]:
    vocabulary = load_pretrained().vocabulary
    assert vocabulary is not None
    weights, draw, made, held = [1 / (k + 1) for k in range(len(vocabulary))], random.Random(0), [], 0
    while held < words:
        lengths = [draw.randint(1, 40) for _ in range(draw.choice([1, 1, 4, 32]))]
        made.append([draw.choices(vocabulary, weights, k=n) for n in lengths])
        held += sum(lengths)
    return made


def objects(folder: Path) -> Iterator[tuple[str, Callable[[], tuple[Call, Callable[[], None]]]]]:
    """A name, and what makes the call and empties the caches; files go into the folder."""

    def elmo(dtype: str) -> tuple[Call, Callable[[], None]]:
        encoder = Elmo.from_pretrained(dtype=dtype)
        return encoder.encode_tokens, encoder.forget_words

    def static() -> tuple[Call, Callable[[], None]]:
        words = tuple(dict.fromkeys(load_pretrained().vocabulary or ()))
        table = WordTable(words, np.random.default_rng(0).standard_normal((len(words), 100), dtype=np.float32))
        return Static(table).encode_tokens, lambda: None

    def language_model() -> tuple[Call, Callable[[], None]]:
        lm = LanguageModel.from_pretrained()
        return lambda given: lm.score(given[:2]), lm.runner.forget_words

    def embedder() -> tuple[Call, Callable[[], None]]:
        tool = ElmoEmbedder(stateful=False)
        return tool.embed_batch, tool._runner.forget_words

    def lite() -> tuple[Call, Callable[[], None]]:
        encoder = LiteElmo.from_pretrained()
        return encoder.encode_tokens, lambda: None

    def tagger() -> tuple[Call, Callable[[], None]]:
        elmo = Elmo.from_pretrained()
        some = [tokens for request in requests(2_000) for tokens in request]
        tagged = [TaggedExample(Sentence.of(s), tuple("B-X" if len(w) > 5 else "O" for w in s), "IOB2") for s in some]
        setup = load_setup(NER, flags={"epochs": 1})
        model = train_task(NER, setup, tagged[8:], tagged[:8], encoder=elmo, device="cpu")
        return lambda given: model.predict_examples([TaggedExample(Sentence.of(s)) for s in given]), elmo.forget_words

    def index() -> tuple[Call, Callable[[], None]]:
        elmo = Elmo.from_pretrained()
        built = Index.build(elmo, [tokens for request in requests(4_000) for tokens in request], folder / "index")
        queries = cycle(np.random.default_rng(0).standard_normal((100_000, elmo.width), dtype=np.float32))
        return lambda given: built.search(np.stack([next(queries) for _ in given]), k=10, exact=True), lambda: None

    def onnx() -> tuple[Call, Callable[[], None]]:
        export_onnx(load_pretrained(), folder / "onnx")
        return OnnxElmo(folder / "onnx").encode_tokens, lambda: None

    yield "Python alone", lambda: (lambda given: [[word.lower() for word in tokens] for tokens in given], lambda: None)
    for dtype in ("default", "float32", "bfloat16"):
        yield f"Elmo {dtype}", lambda dtype=dtype: elmo(dtype)  # type: ignore[misc]
    yield "Static", static
    yield "LanguageModel", language_model
    yield "ElmoEmbedder", embedder
    yield "LiteElmo", lite
    yield "Tagger", tagger
    yield "Index", index
    yield "OnnxElmo", onnx


def seconds(call: Call, given: list[Request], threads: int) -> tuple[float, float]:
    """The time that all requests take, and that of the CPUs; a thread takes the next one when it is done."""
    numbers, ready = count(), threading.Barrier(threads + 1)

    def work() -> None:
        ready.wait()
        while (k := next(numbers)) < len(given):
            call(given[k])

    running = [threading.Thread(target=work) for _ in range(threads)]  # one, too: each starts helpers of its own
    for thread in running:
        thread.start()
    while ready.n_waiting < threads:
        time.sleep(0.001)
    begin, worked = time.perf_counter(), time.process_time()
    ready.wait()
    for thread in running:
        thread.join()
    return time.perf_counter() - begin, time.process_time() - worked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--words", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    given = requests(options.words)
    words = sum(len(tokens) for request in given for tokens in request)
    print(
        f"{len(given)} requests of {words} words; torch {torch.__version__}, {torch.get_num_threads()} torch threads, "
        f"{'C' if c_library() else 'no C'}; thousand words a second, median of {options.rounds}"
    )
    print(f"{'object':16} {'1 thread':>10} {f'{options.threads} threads':>10} {'ratio':>7} {'CPU':>7}")
    low = []
    scratch = tempfile.TemporaryDirectory()
    for name, make in objects(Path(scratch.name)):
        if options.only and name not in options.only:
            continue
        call, forget = make()
        call(given[0])
        again = given * max(1, round(SHORTEST / seconds(call, given, 1)[0]))
        times = []
        for _ in range(options.rounds):
            forget()
            one = seconds(call, again, 1)
            forget()
            times.append((one, seconds(call, again, options.threads)))
        ratio, work = (statistics.median(one[k] / many[k] for one, many in times) for k in (0, 1))
        words = sum(len(tokens) for request in again for tokens in request)
        one, many = (words / 1000 / statistics.median(t[k][0] for t in times) for k in (0, 1))
        print(f"{name:16} {one:10.1f} {many:10.1f} {ratio:7.2f} {1 / work:7.2f}", flush=True)
        if ratio < LEAST:
            low.append(name)
    scratch.cleanup()
    if low:
        sys.exit(f"less done by {options.threads} threads than by one: {', '.join(low)}")


if __name__ == "__main__":
    main()
