"""How fast each variant of the C library is on this CPU: one LSTM layer, both directions, without torch.

    python benchmarks/variants.py [--size original] [--threads 2] [--variants amx,avx512vnni] [--library FILE ...]

Every variant has a process of its own, in each of several rounds; the quickest counts. Each is told on standard error
as it comes. Random weights. Words a second are those of this one layer; the layers of a model share them. Sentences
have 20 words, and no word is met twice.
`--library` compares libraries of other builds (`build.py --output FILE`) with the one in use.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from elmokit.native.library import c_library
from elmokit.native.lstm import CLstm
from elmokit.native.numbers import ArrayMatrix, Floats, quantise, to_bfloat16
from elmokit.shape import LstmRules

SIZES = {"original": (512, 4096, 512), "medium": (256, 2048, 256), "small": (128, 1024, 128)}  # input, cells, output
MODES = ("float32", "bfloat16", "int8")
LENGTH, SECONDS = 20, 0.4  # words of a sentence; what a measurement takes at least


def held(values: Floats, mode: str) -> ArrayMatrix:
    return {"float32": lambda v: v, "bfloat16": to_bfloat16, "int8": quantise}[mode](values)


def measure(size: str, mode: str, rows: tuple[int, ...]) -> dict[str, float]:
    """Words a second of the layer, by sentences in a batch."""
    library = c_library()
    assert library is not None
    D, H, P = SIZES[size]
    source = np.random.default_rng(0)

    def drawn(N: int, K: int) -> list[ArrayMatrix]:
        one = source.standard_normal((N, K), np.float32) * np.float32(K**-0.5)
        return [held(one, mode), held(one, mode)]

    bias = np.zeros((2, 4 * H), np.float32)
    layer = CLstm(library, drawn(4 * H, D), drawn(4 * H, P), bias, drawn(P, H), LstmRules(3.0, 3.0, 1.0))
    found = {}
    for B in rows:
        x = source.standard_normal((2, B * LENGTH, D), np.float32)
        h, c = np.zeros((2, B, P), np.float32), np.zeros((2, B, H), np.float32)
        took, begin = [], time.perf_counter()
        while len(took) < 3 or time.perf_counter() - begin < SECONDS:
            start = time.perf_counter()
            layer(x, h, c, (B,) * LENGTH)
            took.append(time.perf_counter() - start)
        found[str(B)] = B * LENGTH / min(took)
    return found


def running(library: str | None) -> list[str]:
    """The variants that this CPU runs, the best first."""
    code = "import warnings; warnings.simplefilter('ignore'); from elmokit.native.library import compiled; "
    around = {**os.environ, "ELMOKIT_VARIANT": "?", **({"ELMOKIT_LIBRARY": library} if library else {})}
    told = subprocess.run(
        [sys.executable, "-c", code + "print(compiled().missing)"],
        env=around,
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout.strip().rpartition("this CPU runs ")[2].split(", ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="original")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="1,8,48,96", help="sentences in a batch")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--variants", help="default: all that this CPU runs")
    parser.add_argument("--library", action="append", default=[], help="a library of another build, beside the usual")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a mode to measure in this process
    given = parser.parse_args()
    rows = tuple(map(int, given.rows.split(",")))
    if given.one:
        print(json.dumps(measure(given.size, given.one, rows)))
        return
    libraries: list[str | None] = [None, *given.library]
    table: dict[tuple[Any, ...], dict[str, float]] = {}
    for _ in range(given.rounds):
        for mode in given.modes.split(","):
            for library in libraries:
                for variant in given.variants.split(",") if given.variants else running(library):
                    command = [sys.executable, __file__, "--size", given.size, "--rows", given.rows, "--one", mode]
                    around = {**os.environ, "ELMOKIT_VARIANT": variant, "OMP_NUM_THREADS": str(given.threads)}
                    around |= {"ELMOKIT_LIBRARY": library} if library else {}
                    ran = subprocess.run(command, env=around, check=True, capture_output=True, text=True)
                    best = table.setdefault((mode, variant, library), {})
                    for key, value in json.loads(ran.stdout).items():
                        best[key] = max(best.get(key, 0), value)
                    print(mode, variant, library or "", ran.stdout.strip(), file=sys.stderr, flush=True)
    print(f"{given.size} size, one layer, {given.threads} threads: words/s by sentences in a batch")
    print(f"{'':28}" + "".join(f"{B:>10}" for B in rows))
    for (mode, variant, library), best in table.items():
        name = f"{mode}, {variant}" + (f", {library}" if library else "")
        print(f"{name:28}" + "".join(f"{best[str(B)]:10,.0f}" for B in rows))


if __name__ == "__main__":
    main()
