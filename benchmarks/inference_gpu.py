"""Inference on a CUDA device: is it right, how fast is it. Original size, random weights; about a minute in all.

    PYTHONPATH=src python benchmarks/inference_gpu.py --check --bench --out inference_gpu.json

`--check` compares every number type, without CUDA graphs and with them, words known and new, with float32 on the CPU,
and exits with 1 where float32 is off by more than 1e-4 or half precision by more than a cosine of 0.999 allows, where
two replays differ, where nothing was replayed, or where what arrives in host memory is not what the device holds.
`--bench` prints: tokens a second for batches of ids already on the device, all layers left there; the latency of one
sentence of 20 tokens, from ids and from text; and, apart from these, text to NumPy arrays in host memory, in a second
pass; `first_pass` is the one before it, which also compiles kernels for numbers of rows not seen until then.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmokit.batch import build_batch
from elmokit.encoders import Elmo
from elmokit.encoders.elmo._cuda_graphs import filled_words
from elmokit.encoders.results import per_sentence
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.text import Sentence
from elmokit.weights import Pretrained

os.environ["ELMOKIT_GRAPHS"] = "1"
SIZES = {"original": (4096, 512, 2), "medium": (2048, 256, 1), "small": (1024, 128, 1)}  # cell, projection, highways
TYPES = ("float32", "bfloat16", "float16")


def random_model(size: str) -> Pretrained:
    cell, width, highways = SIZES[size]
    tokens = TokenEncoderConfig(projection_dim=width, n_highway=highways)
    model = BiLM(BiLMConfig(tokens=tokens, lstm=LstmConfig(cell, width)))
    initialise(model, seed=0)
    return Pretrained.of(model.requires_grad_(False))


def sentences(n: int, *, low: int = 20, high: int = 30, seed: int = 0) -> list[Sentence]:
    """Words as often as in text: by Zipf's law, rarer ones longer."""
    draw = np.random.default_rng(seed)
    lengths = np.sort(draw.integers(low, high + 1, n))[::-1]
    ranks = np.minimum(draw.zipf(1.3, int(lengths.sum())), 200_000)
    words = [f"w{rank:x}" * (1 + int(rank > 50) + int(rank > 5000)) for rank in ranks]
    ends = np.cumsum(lengths)
    return [Sentence.of(words[end - size : end]) for end, size in zip(ends, lengths, strict=True)]


def check(pretrained: Pretrained) -> bool:
    text = [*sentences(6, low=3, high=19), *sentences(3, low=60, high=70)]
    exact = [stack.astype(np.float64) for stack in Elmo(pretrained, device="cpu").encode_layers(text)]
    right = True

    def tell(ok: bool, what: str) -> None:
        nonlocal right
        right &= ok
        print(f"{'ok ' if ok else 'OFF'} {what}")

    for kind in TYPES:
        elmo = Elmo(pretrained, device="cuda", dtype=kind)
        runner = elmo.placed()
        graphs = runner.graphs

        def without(elmo: Elmo = elmo, runner: Any = runner, graphs: Any = graphs) -> list[Any]:
            runner.graphs = None
            found = elmo.encode_layers(text)
            runner.graphs = graphs
            return found

        def known(elmo: Elmo = elmo) -> list[Any]:
            return [elmo.encode_layers(sentence) for sentence in text]

        def new(elmo: Elmo = elmo) -> list[Any]:
            found = []
            for sentence in text:
                elmo.forget_words()
                found.append(elmo.encode_layers(sentence))
            return found

        for _ in range(2):  # a shape is recorded when it comes for the second time
            new()
        runs = {"without graphs": without, "graphs, words known": known, "graphs, words new": new}
        for name, run in runs.items():
            found = run()
            worst = max(float(np.abs(a - b).max()) for a, b in zip(found, exact, strict=True))
            like = min(float(_cosines(a, b).min()) for a, b in zip(found, exact, strict=True))
            ok = worst < 1e-4 if kind == "float32" else like > 0.999
            tell(ok, f"{kind:9} {name:20} largest error {worst:.1e}  worst cosine {like:.6f}")
        shapes = [] if graphs is None else sorted(graphs.kept.known)
        tell({len(shape) for shape in shapes} == {1, 2} and not graphs.failed, f"{kind:9} recorded: {shapes}")
        tell(*_replays(elmo, text[:2]))
        tell(*_words_replayed(elmo, text[0]))
        tell(*_arrivals(elmo, sentences(400)))
    return right


def _replays(elmo: Elmo, batch: list[Sentence]) -> tuple[bool, str]:
    runner = elmo.placed()
    found = [runner.stack(batch).values for _ in range(4)][2:]
    plain = runner.layers(batch)[0].values
    again = bool(torch.equal(*found))
    return again, f"{elmo.dtype} replays equal: {again}; against no graph at most {_gap(found[0], plain):.1e}"


def _words_replayed(elmo: Elmo, sentence: Sentence) -> tuple[bool, str]:
    """The token encoder replayed, against the same rows without a graph: both filled up, and only the words."""
    runner, rows = elmo.placed(), elmo.codec.encode(sorted(set(sentence.tokens)))
    with torch.no_grad():
        found = [runner.graphs.encode(rows) for _ in range(4)][2:]
        if any(part is None for part in found):
            return False, f"{elmo.dtype} new words were not replayed"
        filled, plain = (
            runner.bilm.tokens(torch.from_numpy(given).cuda()) for given in (filled_words(rows, elmo.codec.begin), rows)
        )
    again = bool(torch.equal(*found))
    gaps = _gap(found[0], filled[: len(rows)]), _gap(found[0], plain)
    ok = again and max(gaps) <= (1e-5 if elmo.dtype == torch.float32 else 0.05) * float(plain.abs().max())
    return ok, f"{elmo.dtype} new words: replays equal: {again}; no graph at most {gaps[0]:.1e}, unfilled {gaps[1]:.1e}"


def _arrivals(elmo: Elmo, batch: list[Sentence]) -> tuple[bool, str]:
    """What `per_sentence` hands out is what the device holds, and stays so while later batches arrive."""
    stack = elmo.run(batch).inner()
    expected = [stack.values[:, b, : len(s)].float().cpu().numpy() for b, s in enumerate(batch)]
    kept = per_sentence(stack.values, stack.mask)
    for k in range(3):
        per_sentence(stack.values + k, stack.mask)
    ok = all(np.array_equal(a, b) for a, b in zip(kept, expected, strict=True))
    return ok, f"{elmo.dtype} {sum(a.nbytes for a in kept) / 1e6:.0f} MB arrived in host memory and stayed: {ok}"


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.float() - b.float()).abs().max())


def bench(pretrained: Pretrained, *, rows: list[int], types: list[str]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []

    def report(**row: Any) -> None:
        results.append(row)
        print(
            "  ".join(f"{key} {value:,.2f}" if isinstance(value, float) else f"{value}" for key, value in row.items())
        )

    one = sentences(1, low=20, high=20)
    for kind in types:
        elmo = Elmo(pretrained, device="cuda", dtype=kind)
        runner, bilm = elmo.placed(), elmo.bilm
        for n in rows:
            text = sentences(n)
            batch = build_batch(text, elmo.codec)
            words = sum(map(len, text))
            types_, index = torch.from_numpy(batch.types).cuda(), torch.from_numpy(batch.index).cuda()

            def from_ids(types_=types_, index=index, lengths=batch.lengths, bilm=bilm) -> None:
                with torch.inference_mode():
                    bilm(types_, index, lengths)

            seconds = _median(from_ids)
            report(what="ids to layers on the device", dtype=kind, rows=n, types=len(batch.types),
                   tokens_per_second=words / seconds)  # fmt: skip

        def from_text(elmo=elmo, runner=runner) -> None:
            elmo.run(one)

        seconds = _median(from_text, repeats=50)
        report(what="one sentence, words known, layers on the device", dtype=kind, milliseconds=1e3 * seconds)

        def afresh(elmo=elmo) -> None:
            elmo.forget_words()
            elmo.run(one)

        report(what="one sentence, words new", dtype=kind, milliseconds=1e3 * _median(afresh, repeats=20))
        seconds = _median(lambda elmo=elmo: elmo.encode_layers(one), repeats=50)
        report(what="one sentence, all layers to host memory", dtype=kind, milliseconds=1e3 * seconds)
        if kind != "float32":
            text = sentences(8192, low=5, high=45, seed=1)
            words = sum(map(len, text))
            for layers in ("all", "average"):
                first, later = (words / _streamed(elmo, text, layers) for _ in range(2))
                report(what=f"text to host memory, layers {layers}", dtype=kind, tokens_per_second=later,
                       first_pass=first)  # fmt: skip
    report(what="peak device memory", gigabytes=torch.cuda.max_memory_allocated() / 1e9)
    return results


def _streamed(elmo: Elmo, text: list[Sentence], layers: str) -> float:
    """Seconds of one pass in which each distinct word is new once."""
    elmo.forget_words()
    start = time.perf_counter()
    for _ in elmo.stream(text, layers=layers):
        pass
    return time.perf_counter() - start


def _median(run: Callable[[], object], *, repeats: int = 5) -> float:
    """Seconds of one call, the device's work included; the first two calls compile and are left out."""
    times = []
    for k in range(repeats + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if k >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--size", choices=SIZES, default="original")
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float16"], choices=TYPES)
    parser.add_argument("--out", type=Path, help="results as JSON")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device; run this where there is one")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    right = check(random_model("small")) and check(random_model(args.size)) if args.check else True
    results = bench(random_model(args.size), rows=args.rows, types=args.dtypes) if args.bench else []
    if args.out is not None:
        args.out.write_text(json.dumps({"right": right, "results": results}, indent=2) + "\n")
    sys.exit(not right)


if __name__ == "__main__":
    main()
