"""The `--bench` of kernels.py: the recurrence, block shapes and convolutions, as medians of CUDA-graph replays."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from elmokit.kernels import Filter, LstmRules, LstmState, LstmWeights, reference_char_cnn
from kernels_shared import OFFICIAL, captured, in_parallel, words

SIZES = {"original": (512, 4096, 512), "medium": (256, 2048, 256), "small": (128, 1024, 128)}  # D, H, P
T = 20


def _variants() -> dict[str, dict[str, object]]:
    """What differs from the default plan, at the original size and 1,024 rows."""
    from elmokit.kernels.triton._pieces import Tile

    def tiles(field: str, *shapes: tuple[int, ...], **more: object) -> dict[str, dict[str, object]]:
        return {f"{field} {'x'.join(map(str, s))}{_named(more)}": {field: Tile(*s), **more} for s in shapes}

    return {
        "default": {},
        "default again": {},
        "hoisted": {"hoist": True},
        **tiles("gates", (128, 32, 64, 4, 3), (128, 64, 64, 8, 3), weave=False),
        **tiles("gates", (128, 64, 64, 8, 3), (128, 64, 64, 8, 4), (128, 32, 64, 8, 3), (64, 64, 64, 4, 3)),
        **tiles("gates", (128, 32, 128, 4, 2), (256, 32, 64, 8, 3), (64, 32, 64, 4, 4), (128, 32, 32, 4, 6)),
        "tma": {"tma": True},
        **tiles("gates", (128, 32, 64, 8, 3), (128, 64, 64, 8, 3), (128, 64, 64, 8, 4), (64, 32, 64, 4, 4), tma=True),
        **tiles("feed_backward", (128, 128, 64, 4, 4), (128, 128, 64, 8, 6), (128, 128, 128, 8, 3), tma=True),
        "library project": {"library_project": True},
        **tiles("project", (128, 64, 64, 8, 4), (64, 64, 64, 4, 5), (128, 64, 128, 4, 3), (64, 128, 64, 4, 4)),
        **tiles("project", (128, 128, 64, 8, 4), project_split=2),
        "library du": {"library_du": True},
        **tiles("cell_backward", (16, 128, 64, 4, 3), (8, 256, 64, 4, 3), library_du=True),
        **tiles("cell_backward", (64, 64, 64, 8, 3), (64, 64, 64, 4, 3), (128, 32, 64, 8, 3), (64, 32, 128, 4, 2)),
        "library feed": {"library_feed": True},
        "library feed, dx apart": {"library_feed": True, "fold_dx": False},
        "dx apart": {"fold_dx": False},
        **tiles("feed_backward", (128, 128, 64, 4, 4), (128, 128, 64, 8, 6), (128, 128, 128, 8, 3)),
        **tiles("feed_backward", (128, 256, 64, 8, 3), feed_split=2),
    }


def _named(more: dict[str, object]) -> str:
    return "".join(f" {key}={value}" for key, value in more.items())


@dataclass(frozen=True)
class Run:
    """One thing to time: layers of the recurrence at a size and batch."""

    size: str
    rows: int
    layers: int = 2
    grad: bool = True
    plan: tuple[tuple[str, object], ...] = ()
    steps: tuple[int, ...] | None = None


def _stack(run: Run) -> Callable[[], object]:
    """`layers` layers, residual from the second on, as in the biLM; forward, and backward of everything if `grad`."""
    from elmokit.kernels.triton._lstm_plan import choose_plan
    from elmokit.kernels.triton.lstm import triton_lstm

    D, H, P = SIZES[run.size]
    R, B, steps = 2, run.rows, run.steps or (run.rows,) * T
    N = sum(steps)

    def random(*shape: int, scale: float) -> Tensor:
        return (torch.randn(*shape, device="cuda") * scale).bfloat16().requires_grad_(run.grad)

    layers = [
        LstmWeights(
            random(R, 4 * H, D, scale=D**-0.5),
            random(R, 4 * H, P, scale=P**-0.5),
            random(R, 4 * H, scale=0.1),
            random(R, P, H, scale=H**-0.5),
        )
        for _ in range(run.layers)
    ]
    x = random(R, N, D, scale=1.0)
    state = LstmState(torch.zeros(R, B, P, device="cuda", dtype=torch.bfloat16), torch.zeros(R, B, H, device="cuda"))
    d = torch.randn(R, N, P, device="cuda").bfloat16() * 1e-3
    plan = replace(choose_plan(steps, H, torch.bfloat16), **dict(run.plan))
    leaves = [x, *(part for layer in layers for part in layer)]

    def step() -> object:
        h = x
        for k, layer in enumerate(layers):
            out, _ = triton_lstm(h, layer, state, steps, LstmRules(), plan=plan)
            h = out if k == 0 else out + h
        return torch.autograd.grad(h, leaves, d) if run.grad else h

    return step


def _torch_lstm(size: str, rows: int, *, grad: bool) -> Callable[[], object]:
    D, H, P = SIZES[size]
    lstm = torch.nn.LSTM(D, H, num_layers=2, bidirectional=True, proj_size=P, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(T, rows, D, device="cuda", dtype=torch.bfloat16, requires_grad=grad)
    d = torch.randn(T, rows, 2 * P, device="cuda", dtype=torch.bfloat16)
    leaves = [x, *lstm.parameters()]

    def step() -> object:
        if grad:
            return torch.autograd.grad(lstm(x)[0], leaves, d)
        with torch.no_grad():
            return lstm(x)[0]

    return step


def _cnn(U: int, *, grad: bool, plain: bool) -> Callable[[], object]:
    from elmokit.kernels.triton.char_cnn import triton_char_cnn

    chars = words(U, 50, 261)
    shapes = [(262, 16), *(shape for width, n in OFFICIAL for shape in ((n, 16, width), (n,)))]
    leaves = [(torch.randn(*s, device="cuda") * 0.3).bfloat16().requires_grad_(grad) for s in shapes]
    filters = [Filter(*pair) for pair in zip(leaves[1::2], leaves[2::2], strict=True)]
    d = torch.randn(U, 2048, device="cuda").bfloat16()
    run = reference_char_cnn if plain else triton_char_cnn

    def step() -> object:
        out = run(chars, leaves[0], filters, "relu", pad=261)
        return torch.autograd.grad(out, leaves, d) if grad else out

    return step


def _smoke(run: Run | tuple[int, bool]) -> dict[str, float]:
    """Run once, in a process of its own, to fill Triton's cache and to see whether it compiles at all."""
    step = _stack(run) if isinstance(run, Run) else _cnn(run[0], grad=run[1], plain=False)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - start}


def _median(run: Callable[[], object], *, repeat: int = 12) -> float:
    """Milliseconds."""
    times = []
    for k in range(repeat + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        if k >= 3:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def _time(make: Callable[[], Callable[[], object]], *, graph: bool = True, repeat: int = 12) -> float | str:
    try:
        step = make()
        if not graph:
            return _median(step, repeat=repeat)
        replay, result = captured(step)
        median = _median(replay, repeat=repeat)
        del replay, result
        return median
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        torch.cuda.empty_cache()


def _shares(step: Callable[[], object]) -> list[tuple[str, float]]:
    """Milliseconds by kernel, from the profiler."""
    from torch.profiler import ProfilerActivity, profile

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    rows = [(row.key, row.device_time_total / 1e3) for row in seen.key_averages() if row.device_time_total > 0]
    return sorted(rows, key=lambda row: -row[1])


def _ceilings() -> tuple[float, float]:
    """TFLOP/s of a large bf16 product, TB/s of a large copy (read and written)."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    big = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / _median(lambda: a @ a) / 1e9, 2 * big.nbytes / _median(lambda: big.clone()) / 1e9


def bench(out: Path | None) -> int:
    started = time.perf_counter()
    variants = {name: tuple(fields.items()) for name, fields in _variants().items()}
    batches = {"original": (256, 512, 1024, 2048), "medium": (512, 1024, 2048), "small": (512, 1024, 2048, 4096)}
    stacks = {f"{size} {rows}": Run(size, rows) for size, many in batches.items() for rows in many}
    shrinking = tuple(sorted((min(512, int(600 * 0.93**t)) for t in range(60)), reverse=True))
    inference = {f"original {rows}": Run("original", rows, grad=False) for rows in (1, 32, 128, 512, 2048)}
    inference["original 512 shrinking"] = Run("original", 512, grad=False, steps=shrinking)
    inference |= {f"{size} 2048": Run(size, 2048, grad=False) for size in ("medium", "small")}
    layer = {name: Run("original", 1024, layers=1, plan=plan) for name, plan in variants.items()}
    warm: dict[str, tuple[Callable[..., dict[str, float]], object]] = {
        **{f"layer {name}": (_smoke, run) for name, run in layer.items()},
        **{f"stack {name}": (_smoke, run) for name, run in stacks.items()},
        **{f"inference {name}": (_smoke, run) for name, run in inference.items()},
        "cnn": (_smoke, (8192, True)),
        "cnn inference": (_smoke, (8192, False)),
    }
    broken = {name: result for name, result in in_parallel(warm) if isinstance(result, str)}
    compiled = time.perf_counter() - started
    print(f"compiled in {compiled:.0f} s; {len(broken)} variants failed", flush=True)

    found: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "broken": broken}
    ceiling, copy = _ceilings()
    found["ceilings"] = {"TFLOP/s": ceiling, "TB/s": copy}
    table = [f"bf16 product {ceiling:.0f} TFLOP/s, copy {copy:.2f} TB/s"]

    table.append("\nlayer, original, 1024 x 20: forward + backward ms (change against default)")
    times = {name: _time(lambda r=run: _stack(r)) for name, run in layer.items() if f"layer {name}" not in broken}
    found["layer variants ms"] = times
    base = times["default"]
    for name, ms in times.items():
        change = (
            f"{ms:8.3f} {100 * (ms / base - 1):+6.1f}%" if isinstance(ms, float) and isinstance(base, float) else ms
        )
        table.append(f"  {name:52} {change}")

    table.append(
        "\ntwo layers, two directions, bf16, T = 20: thousand tokens/s (forward + backward | forward), share of ceiling"
    )
    speeds: dict[str, dict[str, object]] = {}
    for name, run in stacks.items():
        row: dict[str, object] = {}
        row["ours ms"] = _time(lambda r=run: _stack(r))
        row["ours forward ms"] = _time(lambda r=run: _stack(replace(r, grad=False)))
        if run.rows >= 512:
            row["nn.LSTM ms"] = _time(lambda r=run: _torch_lstm(r.size, r.rows, grad=True), graph=False, repeat=6)
            row["nn.LSTM forward ms"] = _time(
                lambda r=run: _torch_lstm(r.size, r.rows, grad=False), graph=False, repeat=6
            )
        speeds[name] = row
        D, H, P = SIZES[run.size]
        flops = 2 * 2 * 2 * (4 * H * (D + P) + H * P) * run.rows * T
        rates = {key: run.rows * T / ms if isinstance(ms, float) else 0.0 for key, ms in row.items()}
        ours = row["ours ms"]
        share = 3 * flops / ours / 1e9 / ceiling if isinstance(ours, float) else 0.0
        table.append(
            f"  {name:14} ours {rates['ours ms']:7.0f} | {rates['ours forward ms']:7.0f}   nn.LSTM "
            f"{rates.get('nn.LSTM ms', 0.0):7.0f} | {rates.get('nn.LSTM forward ms', 0.0):7.0f}   {100 * share:3.0f}%"
        )
    found["stacks"] = speeds

    table.append("\ninference, two layers, bf16: ms and thousand tokens/s under a graph, ms without")
    lone: dict[str, object] = {}
    for name, run in inference.items():
        with torch.no_grad():
            graph, eager = _time(lambda r=run: _stack(r)), _time(lambda r=run: _stack(r), graph=False, repeat=6)
        lone[name] = {"graph ms": graph, "eager ms": eager}
        tokens = sum(run.steps or (run.rows,) * T)
        if isinstance(graph, float) and isinstance(eager, float):
            table.append(f"  {name:24} {graph:8.3f} ms {tokens / graph:7.0f} k/s   {eager:8.3f} ms")
        else:
            table.append(f"  {name:24} {graph} {eager}")
    found["inference"] = lone

    table.append("\ncharacter convolutions, official filters, bf16: ms (forward + backward | forward; plain torch)")
    cnn: dict[str, object] = {}
    for U in (8192, 16384):
        row = {
            "ours ms": _time(lambda u=U: _cnn(u, grad=True, plain=False)),
            "ours forward ms": _time(lambda u=U: _cnn(u, grad=False, plain=False)),
            "plain ms": _time(lambda u=U: _cnn(u, grad=True, plain=True), graph=False, repeat=4),
        }
        cnn[str(U)] = row
        table.append(f"  {U:6} " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    found["char cnn"] = cnn

    for title, step in (
        ("layer, original 1024", _stack(layer["default"])),
        ("layer, small 2048", _stack(Run("small", 2048, layers=1))),
        ("char cnn 8192", _cnn(8192, grad=True, plain=False)),
    ):
        try:
            shares = _shares(step)
            found[f"shares {title}"] = shares
            whole = sum(ms for _, ms in shares)
            table.append(f"\n{title}: ms by kernel, of {whole:.2f}")
            table += [f"  {ms:7.3f} {100 * ms / whole:4.1f}%  {name[:90]}" for name, ms in shares[:10]]
        except Exception as error:
            table.append(f"\n{title}: no profile ({type(error).__name__}: {str(error)[:100]})")
    table += [f"broken: {name}: {text[-160:]}" for name, text in broken.items()]
    table.append(f"\n{time.perf_counter() - started:.0f} s in all, {compiled:.0f} of them compiling")
    found["table"] = table
    if out:
        out.write_text(json.dumps(found, indent=1, default=str))
    print("\n".join(table))
    return 0
