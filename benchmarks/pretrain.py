"""How fast `elmokit pretrain` trains, end to end on real text, beside torch's own LSTM in the same run.

    python benchmarks/pretrain.py corpus/*.txt.xz --presets small medium original --steps 300

For each preset: the rate of the real command (data, negatives, optimizer and logging included), the rate of
`nn.LSTM(..., proj_size=...)` alone (two layers, two directions, no clips, forward + backward, the better of two batch
sizes), the share of the machine's matrix rate that the model's arithmetic comes to (MFU), and what each part of a step
takes on the device. --compare does that without and with the fused elementwise work, and exits with 1 where losses or
gradient norms differ by more than rounding does. Works on a CPU too, where --presets tiny is sensible. --prepare only
prepares the text into the folder that --prepared names.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.kernels import step_wanted
from elmokit.pretrain.command import corpus_of, prepare_only
from elmokit.pretrain.config import PretrainConfig, load_config
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.run import pretrain, training_dtype
from pretrain_parts import clock, differences, elementwise, parts, table


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large product on random data: the ceiling."""
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    return 2 * n**3 / clock(lambda: a @ b, device)


def flops_per_token(config: PretrainConfig) -> dict[str, float]:
    """Forward + backward arithmetic (3 x forward) of one token of text, both directions."""
    width, cell, R = config.projection_dim, config.cell_dim, 1 if config.directions != "both" else 2
    lstm = 2 * R * config.n_layers * (2 * width * 4 * cell + cell * width)
    softmax = 2 * R * width * min(config.samples, config.vocab_size)
    return {"lstm": 3.0 * lstm, "softmax": 3.0 * softmax}


def torch_lstm_rate(config: PretrainConfig, device: torch.device, dtype: torch.dtype) -> float:
    """Tokens a second of nn.LSTM alone, at the better of two batch sizes."""
    best = 0.0
    for rows in (config.rows // 2, config.rows) if device.type == "cuda" else (config.rows,):
        lstm = nn.LSTM(
            config.projection_dim, config.cell_dim, config.n_layers, bidirectional=True, proj_size=config.projection_dim
        ).to(device, dtype)
        x = torch.randn(config.window, rows, config.projection_dim, device=device, dtype=dtype, requires_grad=True)

        def step(lstm: nn.LSTM = lstm, x: Tensor = x) -> None:
            out, _ = lstm(x)
            out.sum().backward()

        best = max(best, rows * config.window / clock(step, device))
    return best


def real_rate(config: PretrainConfig, paths: list[str], prepared: Path, device: str) -> float:
    """Tokens a second of the command itself: the median of its own log after the first fifth."""
    folder = Path(tempfile.mkdtemp())
    try:
        pretrain(config, corpus_of(config, paths), folder, prepared=prepared, device=device, show=False)
        lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        rates = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    finally:
        shutil.rmtree(folder)
    return statistics.median(rates[len(rates) // 5 + 1 :] or rates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="+")
    parser.add_argument("--presets", nargs="+", default=["small", "medium", "original"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=None)
    parser.add_argument(
        "--prepared", type=Path, default=None, help="folder of the prepared text, kept for the next run"
    )
    parser.add_argument("--vocab-size", type=int, default=None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--compare", action="store_true", help="without the fused kernels and with them; exit 1 if they differ"
    )
    parser.add_argument("--kernels", type=int, default=0, help="name so many kernels that take longest")
    parser.add_argument("--alone", action="store_true", help="leave torch's own LSTM out")
    parser.add_argument("--prepare", action="store_true", help="prepare the text and stop")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    keep = arguments.prepared or Path(tempfile.mkdtemp())
    rows = []
    ceiling, wrong = 0.0, []
    for preset in arguments.presets:
        never = 10**9
        flags = {"steps": arguments.steps, "valid_every": never, "checkpoint_every": never, "checkpoint_minutes": 1e9}
        flags |= {"valid_tokens": 2000, "log_every": max(1, arguments.steps // 20), "rows": arguments.rows}
        config = load_config(preset, flags={**flags, "vocab_size": arguments.vocab_size})
        if arguments.prepare:
            prepare_only(config, arguments.corpus, keep, show=False)
            return 0
        dtype = training_dtype(config, device)
        ceiling = ceiling or matrix_rate(device, dtype)
        work, columns = sum(flops_per_token(config).values()), {}
        alone = 0.0 if arguments.alone else torch_lstm_rate(config, device, dtype)
        for fused in (False, True) if arguments.compare else (step_wanted(),):
            name = "fused" if fused else "plain"
            with elementwise(fused=fused):
                rate = real_rate(config, arguments.corpus, keep, arguments.device)
                print(f"{preset}, {config.rows:,} rows, {name}: {rate:,.0f} tokens/s", flush=True)
                rows.append((preset, name, config.rows, rate, alone, work * rate / ceiling))
                columns[name] = parts(config, PreparedCorpus.open(keep), device, most=arguments.kernels)
        print(table(preset, config, columns), flush=True)
        if arguments.compare:
            wrong += [f"{preset}: {what}" for what in differences(columns["plain"], columns["fused"])]
    text = PreparedCorpus.open(keep).report
    print(f"\n{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, torch {torch.__version__}")
    print(f"matrix rate {ceiling / 1e12:.1f} TFLOP/s; vocabulary {text.vocabulary:,}, coverage {text.coverage:.2%}")
    print("preset    step    rows   elmokit pretrain   nn.LSTM alone   ratio     MFU")
    for preset, name, n, rate, alone, share in rows:
        ratio = f"{rate / alone:7.2f}" if alone else "      -"
        print(f"{preset:9s} {name} {n:6d} {rate:14,.0f}/s {alone:13,.0f}/s {ratio} {share:7.1%}")
    if arguments.prepared is None:
        shutil.rmtree(keep)
    for what in wrong:
        print(f"WRONG: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main())
