"""Ways to multiply a few rows by a fixed matrix on this CPU: what the inference modes rest on. About half a minute.

    PYTHONPATH=src python benchmarks/products.py --threads 1

Microseconds of processor time (the best of many runs, taken in turn), so that other work on the machine disturbs
little. "mode" rows are what elmokit runs, quantising and adding included; the others are bare library calls.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from elmokit.kernels.cpu.features import cpu_features
from elmokit.kernels.cpu.int8 import FbgemmMultiply, Int8Matrix, OneDnnMultiply, quantise
from elmokit.kernels.cpu.products import cpu_product

SHAPES = {"original, gates": (512, 16384), "medium, gates": (256, 8192), "original, projection": (4096, 512)}  # K, N
ROWS = (1, 8, 32, 128)


def ways(matrix: Tensor, rows: int) -> dict[str, Callable[[], object]]:
    N, K = matrix.shape
    x, onto = torch.randn(rows, K), torch.randn(1, rows, N)
    held = Int8Matrix(*quantise(matrix))
    half, half_x = matrix.bfloat16(), x.bfloat16()
    blocked = torch.ops.mkldnn._reorder_linear_weight(matrix, None)
    factor = (63 / x.abs().amax()).expand(1, rows, 1)
    found: dict[str, Callable[[], object]] = {
        "float32 linear": lambda: torch.nn.functional.linear(x, matrix),
        "float32 oneDNN, blocked": lambda: torch.ops.mkldnn._linear_pointwise(x, blocked, None, "none", [], ""),
        "bfloat16 linear": lambda: torch.nn.functional.linear(half_x, half),
        "_weight_int8pack_mm, bfloat16": lambda: torch._weight_int8pack_mm(half_x, held.values, held.scale.bfloat16()),
        "int8 oneDNN qlinear": _bound(OneDnnMultiply([held], steps=63, shift=64), x, factor),
    }
    if rows <= 8:
        found["_int_mm"] = lambda: torch._int_mm((x * factor[0]).to(torch.int8), held.values.t())
    if FbgemmMultiply.present():
        found["int8 FBGEMM"] = _bound(FbgemmMultiply([held], steps=63, shift=64), x, factor)
    for mode in (torch.float32, torch.bfloat16, torch.int8):
        product = cpu_product([matrix], mode, packs=True)
        found[f"mode {str(mode).removeprefix('torch.')}"] = lambda product=product: product.add(x[None], onto)
    return found


def _bound(multiply: OneDnnMultiply | FbgemmMultiply, x: Tensor, factor: Tensor) -> Callable[[], object]:
    operand = multiply.whole(x[None], factor)[0]
    return lambda: multiply(0, operand)


def best(found: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    fastest = dict.fromkeys(found, float("inf"))
    for run in found.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, run in found.items():
            start = time.process_time_ns()
            run()
            fastest[name] = min(fastest[name], (time.process_time_ns() - start) / 1e3)
    return fastest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each shape and number of rows")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    print(torch.__version__, torch.backends.cpu.get_cpu_capability(), cpu_features(), f"{args.threads} threads")
    for name, (K, N) in SHAPES.items():
        matrix = 0.05 * torch.randn(N, K)
        table = {rows: best(ways(matrix, rows), args.seconds) for rows in ROWS}
        print(f"\n| {name} ({K} x {N}), microseconds | " + " | ".join(f"{rows} rows" for rows in ROWS) + " |")
        print("| --- |" + " --- |" * len(ROWS))
        for way in table[ROWS[0]]:
            cells = [f"{table[rows][way]:,.0f}" if way in table[rows] else "-" for rows in ROWS]
            print(f"| {way} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
