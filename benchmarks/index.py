"""What an index costs and how well it finds: memory while building, time of a search, recall against exact search.

    python benchmarks/index.py MODEL TEXT... [--occurrences 2000000] [--folder index/] [--layers top] [--json FILE]

The first sentences of the texts, as many as have --occurrences words, are indexed; words of the sentences behind them
are the queries. A folder that holds a part of it is gone on with, and one that holds all of it is only searched.

memory    the most the process held, vectors and graph built in one go: model, segment in the making and graph included
search    one query at a time, vector in, rows and scores out, after a first round that is not counted; on two cores or
          as many as there are, the graph takes one of them
recall    the share of the exact search's ten nearest that approximate search finds
rounding  the same for exact search over int8 against exact search over float16, on --rounding words
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from elmokit import Sentence, load_encoder
from elmokit.encoders import Encoder
from elmokit.formats import read_lines
from elmokit.index import Index, IndexSettings

EVERY = 15.0  # seconds between lines of progress


def read_texts(paths: list[str], encoder: Encoder) -> Iterator[Sentence]:
    for path in paths:
        for line in read_lines(path):
            yield from encoder.tokenizer.split(line)


def take_words(sentences: Iterator[Sentence], count: int) -> Iterator[Sentence]:
    """Sentences up to that many words; what is left stays in the iterator."""
    taken = 0
    while taken < count:
        sentence = next(sentences, None)
        if sentence is None:
            raise SystemExit(f"the texts hold {taken:,} words only, {count:,} were asked for")
        taken += sum(any(map(str.isalnum, token)) for token in sentence.tokens)
        yield sentence


def sample_queries(encoder: Encoder, sentences: Iterator[Sentence], layers: str, count: int) -> Any:
    """Vectors of words evenly spaced over the sentences. (Q, D)"""
    found = encoder.stream(list(islice(sentences, count)), layers=layers)
    words = [
        vector
        for sentence, vectors in found
        for token, vector in zip(sentence.tokens, vectors, strict=True)
        if any(map(str.isalnum, token))
    ]
    return np.stack([words[k] for k in np.linspace(0, len(words) - 1, count).astype(int)])


def recall(truth: Any, found: Any) -> float:
    shares = [len(set(a) & set(b)) / len(a) for a, b in zip(truth.tolist(), found.tolist(), strict=True)]
    return float(np.mean(shares))


def time_searches(index: Index, queries: Any, *, exact: bool) -> list[float]:
    """Milliseconds of each query, sorted."""
    taken = []
    for counted in (False, True):
        for query in queries:
            began = time.perf_counter()
            index.search(query, k=10, exact=exact)
            if counted:
                taken.append(1000 * (time.perf_counter() - began))
    return sorted(taken)


def measure_rounding(encoder: Encoder, paths: list[str], layers: str, words: int) -> float:
    """Recall at 10 of exact search over int8 against float16."""
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for precision in ("float16", "int8"):
            sentences = read_texts(paths, encoder)
            settings = IndexSettings(layers=layers, precision=precision)
            made.append(Index.build(encoder, take_words(sentences, words), f"{folder}/{precision}", settings=settings))
        queries = made[0].vectors(np.linspace(0, len(made[0]) - 1, 200).astype(int))
        return recall(*(index.search(queries, k=10, exact=True).rows for index in made))


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (30 if sys.platform == "darwin" else 20))


def measure(encoder: Encoder, texts: list[str], folder: Path, settings: argparse.Namespace) -> dict[str, float]:
    rows: dict[str, float] = {}
    sentences, last = read_texts(texts, encoder), [0.0]

    def tell(report: Any) -> None:
        if time.monotonic() - last[0] > EVERY:
            last[0] = time.monotonic()
            print(f"  {report.tokens:,} tokens read", file=sys.stderr, flush=True)

    began = time.monotonic()
    index = Index.begin(encoder, folder, settings=IndexSettings(layers=settings.layers))
    report = index.grow(encoder, take_words(sentences, settings.occurrences), name=str(settings.occurrences), told=tell)
    if report.known:  # all there; go to where the queries begin
        for _ in take_words(sentences, settings.occurrences):
            pass
    rows["occurrences"] = len(index)
    rows["seconds to embed and store"] = time.monotonic() - began
    began = time.monotonic()
    index.make_graph()
    rows["seconds to make the graph"] = time.monotonic() - began
    rows["peak memory, GiB"] = peak_gib()
    rows["on disk, GiB"] = sum(p.stat().st_size for p in folder.iterdir()) / (1 << 30)
    queries = sample_queries(encoder, sentences, settings.layers, settings.queries)
    index = Index.open(folder)
    near = time_searches(index, queries, exact=False)
    rows["search, median ms"], rows["search, 95th of 100 ms"] = near[len(near) // 2], near[int(0.95 * len(near))]
    all_of_them = time_searches(index, queries[:10], exact=True)
    rows["exact search, median ms"] = all_of_them[len(all_of_them) // 2]
    assert index.graph is not None
    rows["candidates looked at"] = index.graph.description.expansion
    found = index.search(queries, k=10)
    rows["recall at 10"] = recall(index.search(queries, k=10, exact=True).rows, found.rows)
    if settings.rounding:
        rows["recall at 10 of int8 against float16"] = measure_rounding(
            encoder, texts, settings.layers, settings.rounding
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--occurrences", type=int, default=2_000_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounding", type=int, default=0, help="words to measure rounding on; 0: not")
    parser.add_argument("--layers", default="top")
    parser.add_argument("--folder", type=Path, help="where to keep the index; default a folder that is removed")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path)
    settings = parser.parse_args()
    encoder = load_encoder(settings.model, device=settings.device)
    with tempfile.TemporaryDirectory() as passing:
        rows = measure(encoder, settings.texts, settings.folder or Path(passing) / "index", settings)
    for what, value in rows.items():
        print(f"{what:40} {value:>14,.0f}" if value >= 1000 else f"{what:40} {value:>14.3f}")
    if settings.json:
        settings.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
