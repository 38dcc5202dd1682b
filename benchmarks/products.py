"""Ways to run a model on this CPU, and bare ways to multiply a few rows by a fixed matrix. Two or three minutes.

    PYTHONPATH=src python benchmarks/products.py [--model MODEL] [--seconds 5]

Milliseconds and microseconds of processor time in one thread: the best of several runs, taken in turn, so that other
work on the machine disturbs little. A model's ways are those of elmokit: the plain recurrence, torch (as where there is
no compiler) and C, with how many times as fast as the plain recurrence each is. Of the bare library calls elmokit uses
float32 and oneDNN's blocked float32; the others are what else torch has.
"""

import argparse
import random
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from elmokit import Elmo
from elmokit.kernels.cpu import inference
from elmokit.kernels.cpu.c import c_library
from elmokit.kernels.cpu.int8 import quantise
from elmokit.weights import load_pretrained

SHAPES = {"original, gates": (512, 16384), "original, projection": (4096, 512)}  # K, N
ROWS, SENTENCES = (1, 8, 32, 128), (1, 8, 64)
WAYS = ("plain float32", "torch float32", "torch int8", "C float32", "C bfloat16", "C int8")
Runs = dict[str, Callable[[], object]]


def models(name: str | None) -> dict[str, Elmo]:
    pretrained = load_pretrained(name or "en", softmax=False)
    found = {}
    for way in WAYS:
        where, dtype = way.split()
        if where == "C" and c_library() is None:
            continue
        inference.c_library = c_library if where == "C" else lambda: None  # type: ignore[attr-defined]
        found[way] = elmo = Elmo(pretrained, device="cpu", dtype=dtype, cache_words=1)
        bilm = elmo.bilm
        if where == "plain":
            bilm.lstm = pretrained.build(device=torch.device("cpu"), dtype=torch.float32).lstm
    return found


def text(sentences: int) -> list[list[str]]:
    """Of 20 words each, of 1 to 10 letters."""
    source = random.Random(sentences)
    return [
        ["".join(source.choices("etaoinshrdlu", k=source.randint(1, 10))) for _ in range(20)] for _ in range(sentences)
    ]


def products(matrix: Tensor, rows: int) -> Runs:
    x = torch.randn(rows, matrix.shape[1])
    half, half_x = matrix.bfloat16(), x.bfloat16()
    values, scale = quantise(matrix)
    blocked = torch.ops.mkldnn._reorder_linear_weight(matrix, None)
    packed = torch.ops.onednn.qlinear_prepack(values, None)
    zeros, whole = torch.zeros(len(values), dtype=torch.int32), (x * 20 + 64).clamp(0, 127).to(torch.uint8)
    found: Runs = {
        "float32 linear": lambda: torch.nn.functional.linear(x, matrix),
        "float32 oneDNN, blocked": lambda: torch.ops.mkldnn._linear_pointwise(x, blocked, None, "none", [], ""),
        "bfloat16 linear": lambda: torch.nn.functional.linear(half_x, half),
        "_weight_int8pack_mm": lambda: torch._weight_int8pack_mm(half_x, values, scale.bfloat16()),
        "int8 oneDNN qlinear": lambda: torch.ops.onednn.qlinear_pointwise.default(
            whole, 1.0, 64, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        ),
    }
    if hasattr(torch, "_make_per_channel_quantized_tensor"):
        held = torch._make_per_channel_quantized_tensor(values, scale.double(), zeros.long(), 0)
        fbgemm = torch.ops.quantized.linear_prepack(held, None)
        op = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32.default
        found["int8 FBGEMM"] = lambda: op(x, 0.05, 64, fbgemm)
    return found


def best(runs: Runs, seconds: float) -> dict[str, float]:
    """Milliseconds of each."""
    fastest = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or float("inf") in fastest.values():
        for name, run in runs.items():
            start = time.process_time_ns()
            run()
            fastest[name] = min(fastest[name], (time.process_time_ns() - start) / 1e6)
    return fastest


def show(title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> None:
    print(f"\n| {title} | " + " | ".join(columns) + " |\n| --- |" + " --- |" * len(columns))
    for name, cells in rows.items():
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder, archive, hub id or bundled name; default: the bundled model")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each size and number of rows")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    print(torch.__version__, torch.backends.cpu.get_cpu_capability(), "one thread")
    elmos, took = models(args.model), {}
    for size in SENTENCES:
        runs: Runs = {way: partial(elmo.encode_layers, text(size)) for way, elmo in elmos.items()}
        took[size] = best(runs, args.seconds)
    rows = {way: [f"{took[n][way]:,.0f} ({took[n][WAYS[0]] / took[n][way]:.1f}x)" for n in SENTENCES] for way in elmos}
    show("model, milliseconds", [f"{n} sentences of 20 words" for n in SENTENCES], rows)
    for name, (K, N) in SHAPES.items():
        matrix = 0.05 * torch.randn(N, K)
        table = {rows: best(products(matrix, rows), args.seconds) for rows in ROWS}
        cells = {way: [f"{1000 * table[n][way]:,.0f}" for n in ROWS] for way in table[1]}
        show(f"{name} ({K} x {N}), microseconds", [f"{n} rows" for n in ROWS], cells)


if __name__ == "__main__":
    main()
