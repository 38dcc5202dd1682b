"""What the parts of a training step take on the device, by the names of their kernels; for pretrain.py."""

import math
import os
import statistics
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import torch
from torch.profiler import ProfilerActivity, profile

from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.corpus.manifest import PreparedCorpus
from elmokit.pretrain.objective import Objective
from elmokit.pretrain.run import codec_spec, training_dtype
from elmokit.pretrain.step import CudaGraphStep, Step, TypeCodes
from elmokit.pretrain.windows import Position, Window, WindowPlan, windows

KERNELS = {  # parts of a step by what their kernels are called; the first that fits counts
    "recurrence": ("gates_kernel", "project_kernel", "cell_backward_kernel", "feed_backward_kernel"),
    "matrix products": ("nvjet", "gemm", "splitK", "cutlass"),
    "character convolutions": ("char_cnn", "table_backward", "characters_kernel", "vectorized_gather_kernel<16, int>"),
    "softmax: rows": ("softmax_rows_kernel",),
    "softmax: targets": ("own_scores", "targets_backward"),
    "added rows": ("add_rows", "indexFunc", "index_add", "indexing_backward"),
    "softmax: rows, plain": ("_rows",),
    "highway": ("highway",),
    "clipping and optimizer": (
        "adamw_kernel",
        "FusedAdam",
        "LpNorm",
        "lpnorm",
        "BinaryOpScalarTensor",
        "multi_tensor_apply_kernel<at",
    ),
    "casts and copies": ("copy", "Copy", "Memcpy", "CatArray", "outer_gradient"),
    "zeros": ("Memset", "FillFunctor"),
    "dropout": ("dropout", "masked_scale"),
    "sums": ("reduce_kernel",),
}
OTHER = "other"
SWITCH = "ELMOKIT_FUSED_STEP"
STEPS, RATE = 15, 1e-3  # of the comparison


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


class Parts(NamedTuple):
    """What one kind of step took and computed."""

    seconds: dict[str, float]
    steps: list[list[float]]  # loss and gradient norm of the first steps


@contextmanager
def elementwise(*, fused: bool) -> Iterator[None]:
    """Runs the block with a step's elementwise work in fused kernels, or in plain torch."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = str(int(fused))
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before


def parts(config: PretrainConfig, text: PreparedCorpus, device: torch.device, *, most: int = 0) -> Parts:
    """Seconds of the parts of a step on real windows: what the data thread needs, and the device's kernels by kind.

    `most` kernels that take longest are printed.
    """
    V = len(text.vocabulary)
    dtype = training_dtype(config, device)
    objective = Objective(
        config.model(n_words=V), config.output(), V, dropout=config.dropout, dtype=dtype, device=device
    )
    objective.initialise(1)
    codes = TypeCodes(text.lexicon, codec_spec(config, text).build(config.max_characters), device=device)
    plan = WindowPlan(config.rows, config.window, V)
    stream = cast(Generator[list[Window]], windows(text.train, plan, start=Position(), parts=[slice(0, config.rows)]))
    batches = [next(stream) for _ in range(6)]
    started = time.perf_counter()
    for _ in range(20):
        next(stream)
    result = {"host: one window": (time.perf_counter() - started) / 20}
    stream.close()  # it lays the next segment out, which would hold up the steps
    noise = [torch.rand(objective.noise_shape(), generator=torch.Generator().manual_seed(k)) for k in range(STEPS)]
    kind = CudaGraphStep if device.type == "cuda" else Step
    step = kind(objective, config, codes, batch_rows=config.rows, device=device)
    torch.manual_seed(1)  # the same dropout in both kinds of step
    first = torch.stack([step(batches[k % 3], noise[k], RATE) for k in range(STEPS)]).tolist()
    result["word types"] = len(batches[3][0].types) / 1e3  # told as they are
    repeats = 4
    result["whole step"] = (
        clock(lambda: [step(batch, noise[0], 1e-4) for batch in batches[:5]], device, repeats=repeats) / 5
    )
    if device.type == "cuda":
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            step(batches[5], noise[0], 1e-4)
            torch.cuda.synchronize()
        spent = dict.fromkeys([*KERNELS, OTHER], 0.0)
        seen = []
        for event in profiler.key_averages():
            seconds = event.self_device_time_total / 1e6
            group = next((name for name, marks in KERNELS.items() if any(m in event.key for m in marks)), OTHER)
            spent[group] += seconds
            seen.append((seconds, event.count, group, event.key))
        result |= spent | {"sum of the parts": sum(spent.values()), "kernels": sum(s[1] for s in seen) / 1e3}
        for seconds, count, group, name in sorted(seen, reverse=True)[:most]:
            print(f"    {seconds * 1e3:7.3f} ms {count:4d} x  {group:24s} {name[:110]}")
    return Parts(result, first)


def differences(plain: Parts, fused: Parts) -> list[str]:
    """Where the first steps of both kinds differ by more than rounding to bfloat16 does; prints the losses.

    Both start from the same weights with the same windows, negatives and dropout. The first loss and the first gradient
    norm are of equal weights. Afterwards the runs drift apart, since AdamW's first updates have the size of the rate
    whatever the size of the gradient: steps in float32 and in bfloat16 by up to 3e-4 in 15 steps.
    """
    for name, run in (("plain", plain), ("fused", fused)):
        print(f"  losses of {STEPS} steps, {name}: {', '.join(f'{loss:.4f}' for loss, _ in run.steps)}")
    gaps = [[abs(b / a - 1) for a, b in zip(*pair, strict=True)] for pair in zip(plain.steps, fused.steps, strict=True)]
    found = {"the first loss": (gaps[0][0], 1e-4), "the first gradient norm": (gaps[0][1], 5e-3)}
    worst = max((loss for loss, _ in gaps), key=lambda gap: gap if gap == gap else math.inf)  # NaN is worst
    found["the largest difference of a loss"] = (worst, 5e-3)
    print("  relative: " + ", ".join(f"{name} {gap:.1e} (at most {most:.0e})" for name, (gap, most) in found.items()))
    return [f"{name} differs by {gap:.1e}" for name, (gap, most) in found.items() if not gap <= most]


def table(preset: str, config: PretrainConfig, columns: dict[str, Parts]) -> str:
    """The parts in milliseconds (word types and kernels: their number), one column for each measurement."""
    lines = [f"{preset}, {config.rows:,} rows x {config.window}{'':12s}" + "".join(f"{name:>10s}" for name in columns)]
    names = list(dict.fromkeys(name for column in columns.values() for name in column.seconds))
    for name in names:
        values = [column.seconds.get(name, 0.0) * 1e3 for column in columns.values()]
        if any(values):
            counted = name in ("word types", "kernels")
            lines.append(f"  {name:30s}" + "".join(f"{v:10.0f}" if counted else f"{v:10.2f}" for v in values))
    tokens = config.rows * config.window
    rates = "".join(f"{tokens / column.seconds['whole step'] / 1e3:10,.0f}" for column in columns.values())
    return "\n".join([*lines, f"  {'thousand tokens/s by that':30s}{rates}"])
