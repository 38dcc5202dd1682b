"""The fused GPU kernels: are they right, how fast are they, which block shapes are best. Needs a CUDA device and
Triton.

    PYTHONPATH=src python benchmarks/kernels.py --check
    PYTHONPATH=src python benchmarks/kernels.py --bench --out kernels.json

`--check` compares every kernel in float32 with the plain torch version in float64 and exits with 1 where one is off
by more than 1e-5 (outputs, absolute) or 1e-4 (each gradient, relative). `--bench` prints medians of CUDA-graph
replays: the recurrence beside `torch.nn.LSTM`, block shapes and library products beside each other, and the character
convolutions.
"""

import argparse
import sys
from pathlib import Path

import torch

from kernels_bench import bench
from kernels_check import check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with float64; exit 1 on failure")
    parser.add_argument("--bench", action="store_true", help="time kernels, variants and torch's own LSTM")
    parser.add_argument("--only", nargs="+", help="with --check: the kernels with one of these in their names")
    parser.add_argument("--out", type=Path, help="details as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to check or time here", file=sys.stderr)
        return 2
    if options.check == options.bench:
        parser.error("choose --check or --bench")
    return check(options.out, only=options.only) if options.check else bench(options.out)


if __name__ == "__main__":
    sys.exit(main())
