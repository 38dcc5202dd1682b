"""How fast `elmokit pretrain` trains, end to end on real text, beside torch's own LSTM in the same run.

    python benchmarks/pretrain.py corpus/*.txt.xz --presets small medium original --steps 300

For each preset: the rate of the real command (data, negatives, optimizer and logging included), the rate of
`nn.LSTM(..., proj_size=...)` alone (two layers, two directions, no clips, forward + backward, the better of two batch
sizes), the share of the machine's matrix rate that the model's arithmetic comes to (MFU), and what each part of a step
takes on the device. Works on a CPU too, where --presets tiny is sensible.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from elmokit.pretrain.command import corpus_of
from elmokit.pretrain.config import PretrainConfig, load_config
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.run import codec_spec, pretrain, training_dtype
from elmokit.pretrain.step import CudaGraphStep, Step, TypeCodes
from elmokit.pretrain.windows import Position, WindowPlan, windows


def clock(work: Callable[[], object], device: torch.device, *, repeats: int = 10) -> float:
    """Median seconds of one call, the device's own work included."""
    times = []
    for k in range(repeats + 3):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if k >= 3:
            times.append(time.perf_counter() - started)
    return statistics.median(times)


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


def parts(config: PretrainConfig, text: PreparedCorpus, device: torch.device) -> dict[str, float]:
    """Seconds of the parts of a step on real windows: what the data thread needs, and the device's kernels by kind."""
    V = len(text.vocabulary)
    dtype = training_dtype(config, device)
    objective = Objective(
        config.model(n_words=V), config.output(), V, dropout=config.dropout, dtype=dtype, device=device
    )
    objective.initialise(1)
    codes = TypeCodes(text.lexicon, codec_spec(config, text).build(config.max_characters), device=device)
    plan = WindowPlan(config.rows, config.window, V)
    stream = windows(text.train, plan, start=Position(), parts=[slice(0, config.rows)])
    batches = [next(stream) for _ in range(6)]
    started = time.perf_counter()
    for _ in range(20):
        next(stream)
    result = {"host: one window": (time.perf_counter() - started) / 20}
    print(f"  {len(batches[3][0].types)} word types in a window of {config.rows} x {config.window}")
    noise = torch.rand(objective.noise_shape())
    kind = CudaGraphStep if device.type == "cuda" else Step
    step = kind(objective, config, codes, batch_rows=config.rows, device=device)
    for batch in batches[:3]:
        step(batch, noise, 1e-3)
    result["whole step"] = clock(lambda: step(batches[4], noise, 1e-4), device, repeats=5)
    if device.type == "cuda":
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            step(batches[5], noise, 1e-4)
            torch.cuda.synchronize()
        spent = dict.fromkeys([*KERNELS, "other kernels"], 0.0)
        for event in profiler.key_averages():
            group = next(
                (name for name, marks in KERNELS.items() if any(m in event.key for m in marks)), "other kernels"
            )
            spent[group] += event.self_device_time_total / 1e6
        result |= spent
    return result


KERNELS = {  # parts of a step by what their kernels are called
    "recurrence": ("gates_kernel", "project_kernel", "cell_backward_kernel", "feed_backward_kernel"),
    "character convolutions": ("char_cnn", "table_backward", "vectorized_gather_kernel<16, int>"),
    "sampled softmax rows": ("_rows",),
    "matrix products": ("nvjet", "gemm"),
    "clipping and optimizer": ("multi_tensor_apply",),
}


def main() -> None:
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
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    keep = arguments.prepared or Path(tempfile.mkdtemp())
    table = []
    ceiling = 0.0
    for preset in arguments.presets:
        never = 10**9
        flags = {"steps": arguments.steps, "valid_every": never, "checkpoint_every": never, "checkpoint_minutes": 1e9}
        flags |= {"valid_tokens": 2000, "log_every": max(1, arguments.steps // 20), "rows": arguments.rows}
        config = load_config(preset, flags={**flags, "vocab_size": arguments.vocab_size})
        dtype = training_dtype(config, device)
        ceiling = ceiling or matrix_rate(device, dtype)
        rate = real_rate(config, arguments.corpus, keep, arguments.device)
        alone = torch_lstm_rate(config, device, dtype)
        work = flops_per_token(config)
        table.append((preset, config.rows, rate, alone, sum(work.values()) * rate / ceiling))
        print(f"{preset}: {rate:,.0f} tokens/s", flush=True)
        spent = parts(config, PreparedCorpus.open(keep), device)
        for name, seconds in spent.items():
            print(f"  {name:24s} {seconds * 1e3:8.2f} ms", flush=True)
    text = PreparedCorpus.open(keep).report
    print(f"\n{torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'}, torch {torch.__version__}")
    print(f"matrix rate {ceiling / 1e12:.1f} TFLOP/s; vocabulary {text.vocabulary:,}, coverage {text.coverage:.2%}")
    print("preset     rows   elmokit pretrain   nn.LSTM alone   ratio     MFU")
    for preset, rows, rate, alone, share in table:
        print(f"{preset:9s} {rows:5d} {rate:14,.0f}/s {alone:13,.0f}/s {rate / alone:7.2f} {share:7.1%}")
    if arguments.prepared is None:
        shutil.rmtree(keep)


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
