"""The fused GPU kernels: are they right, how fast are they, which block shapes are best. Needs a CUDA device and
Triton.

    PYTHONPATH=src python benchmarks/kernels.py --check
    PYTHONPATH=src python benchmarks/kernels.py --bench --out kernels.json
    PYTHONPATH=src python benchmarks/kernels.py --pieces small medium original

`--check` compares every kernel in float32 with the plain torch version in float64 and exits with 1 where one is off
by more than 1e-5 (outputs, absolute) or 1e-4 (each gradient, relative). `--bench` prints medians of CUDA-graph
replays: the recurrence beside `torch.nn.LSTM`, block shapes and library products beside each other, and the character
convolutions. `--pieces` times the elementwise work of a training step, plain and fused.
"""

import argparse
import sys
from pathlib import Path

import torch

from kernels_bench import bench
from kernels_check import check
from kernels_pieces import bench_pieces
from kernels_tiles import bench_tiles


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with float64; exit 1 on failure")
    parser.add_argument("--bench", action="store_true", help="time kernels, variants and torch's own LSTM")
    parser.add_argument("--only", nargs="+", help="with --check: the kernels with one of these in their names")
    parser.add_argument("--out", type=Path, help="details as JSON")
    parser.add_argument("--pieces", nargs="+", metavar="PRESET", help="time the elementwise work of a step of these")
    parser.add_argument("--tiles", nargs="+", metavar="SIZE", help="block shapes of the recurrence at these sizes")
    parser.add_argument("--rows", type=int, default=1024, help="with --tiles")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to check or time here", file=sys.stderr)
        return 2
    if options.pieces:
        return bench_pieces(options.pieces)
    if options.tiles:
        return bench_tiles(options.tiles, options.rows)
    if options.check == options.bench:
        parser.error("choose --check, --bench, --pieces or --tiles")
    return check(options.out, only=options.only) if options.check else bench(options.out)


if __name__ == "__main__":
    sys.exit(main())
