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
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from elmokit.kernels import Filter, LstmRules, LstmState, LstmWeights, reference_char_cnn, reference_lstm

SIZES = {"original": (512, 4096, 512), "medium": (256, 2048, 256), "small": (128, 1024, 128)}  # D, H, P
OFFICIAL = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
T = 20
WORKERS = 12  # kernels compile in parallel; each process writes to Triton's cache on disk


# ---------------------------------------------------------------- right?


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[int, ...]
    R: int = 2
    D: int = 64
    H: int = 128
    P: int | None = 32  # None: no projection
    rules: LstmRules = LstmRules(0.6, 0.5, 1.0)  # tight, so that both clips are at work
    keep: bool = False
    idle: int = 0  # rows that never run
    plan: tuple[tuple[str, object], ...] = ()  # fields of a Plan that differ from the default one
    dtype: str = "float32"


def _cases() -> list[Case]:
    dense = (48,) * 5
    ragged = (37, 37, 20, 20, 9, 1, 1)
    whole = {"H": 1024, "D": 128, "P": 128, "rules": LstmRules()}
    return [
        Case("dense", dense),
        Case("folded", dense, plan=(("hoist", False),)),
        Case("folded, woven", dense, plan=(("hoist", False), ("weave", True))),
        Case("hoisted, woven", dense, plan=(("hoist", True), ("weave", True))),
        Case("keep", dense, keep=True, plan=(("hoist", False),)),
        Case("keep, hoisted", dense, keep=True),
        Case("no clip", dense, rules=LstmRules(None, None, 1.0), plan=(("hoist", False),)),
        Case("no projection", dense, P=None, keep=True, plan=(("hoist", False),)),
        Case("one direction", dense, R=1, plan=(("hoist", False),)),
        Case("odd sizes", (19,) * 4, D=23, H=45, P=13, keep=True, plan=(("hoist", False),)),
        Case("odd sizes, hoisted", (19,) * 4, D=23, H=45, P=13),
        Case("shrinking", ragged, idle=3, keep=True, plan=(("hoist", False),)),
        Case("shrinking, hoisted, woven", ragged, idle=3, plan=(("hoist", True), ("weave", True))),
        Case("library products", dense, keep=True, plan=_LIBRARY),
        Case("split sums", dense, keep=True, plan=(("hoist", False), ("project_split", 4), ("feed_split", 2))),
        Case("input gradient apart", dense, plan=(("hoist", False), ("fold_dx", False))),
        Case("small model", (300,) * 4, keep=True, **whole),
        Case("small model, bfloat16", (300,) * 4, keep=True, dtype="bfloat16", **whole),
        Case("small model, bfloat16, tma", (300,) * 4, keep=True, dtype="bfloat16", plan=_TMA, **whole),
        Case("small model, float16", (300,) * 4, keep=True, dtype="float16", **whole),
        Case("small model, bfloat16, shrinking", (70, 70, 33, 5, 1), dtype="bfloat16", **whole),
    ]


_TMA = (("hoist", False), ("weave", True), ("tma", True))
_LIBRARY = (("hoist", False), ("library_project", True), ("library_feed", True), ("library_du", True))


def check_lstm(case: Case) -> dict[str, float]:
    """Largest absolute error of the outputs, relative errors of each gradient, training against inference."""
    from elmokit.kernels.triton_lstm import triton_lstm
    from elmokit.kernels.triton_lstm_plan import choose_plan

    _poison()
    dtype = getattr(torch, case.dtype)
    R, D, H, N, B = case.R, case.D, case.H, sum(case.steps), case.steps[0] + case.idle
    P = case.P or H
    draw = torch.Generator("cuda").manual_seed(int(time.time_ns()) % 2**31)

    def random(*shape: int, scale: float = 1.0) -> Tensor:
        exact = torch.randn(*shape, dtype=torch.float64, device="cuda", generator=draw) * scale
        return exact.to(dtype).double()  # both sides start from the same numbers

    parts = {
        "x": random(R, N, D),
        "w_x": random(R, 4 * H, D, scale=D**-0.5),
        "w_h": random(R, 4 * H, P, scale=P**-0.5),
        "bias": random(R, 4 * H, scale=0.3),
        "w_p": random(R, P, H, scale=2 * H**-0.5) if case.P else None,
        "h": random(R, B, P, scale=0.5),
        "c": random(R, B, H, scale=0.5),
    }
    keep = (torch.rand(R, N, device="cuda", generator=draw) > 0.2).double() if case.keep else None
    ends = [random(R, N, P), random(R, B, P), random(R, B, H)]
    plan = replace(choose_plan(case.steps, H, dtype), **dict(case.plan))
    results = []
    for kind in (torch.float64, dtype):
        leaves = {name: None if t is None else t.detach().to(kind).requires_grad_() for name, t in parts.items()}
        x, w_x, w_h, bias, w_p, h, c = leaves.values()
        given = (x, LstmWeights(w_x, w_h, bias, w_p), LstmState(h, c), case.steps, case.rules)
        kept = None if keep is None else keep.to(kind)
        if kind == torch.float64:
            out, last = reference_lstm(*given, keep=kept)
        else:
            out, last = triton_lstm(*given, keep=kept, plan=plan)
            with torch.no_grad():
                light, light_last = triton_lstm(*given, keep=kept, plan=plan)
        torch.autograd.backward([out, *last], [d.to(kind) for d in ends])
        results.append(([out, *last], {name: t.grad for name, t in leaves.items() if t is not None}))
    (exact, slopes), (ours, our_slopes) = results
    errors = {"out": max(_gap(a, b) for a, b in zip(exact, ours, strict=True))}
    errors["infer"] = max(_gap(a, b) for a, b in zip(ours, [light, *light_last], strict=True))
    errors |= {name: _relative(slopes[name], our_slopes[name]) for name in slopes}
    return errors


def check_char_cnn(case: tuple[str, int, str]) -> dict[str, float]:
    from elmokit.kernels.triton_char_cnn import triton_char_cnn

    _poison()
    activation, E, kind = case
    dtype, pad, A, C = getattr(torch, kind), 261, 262, 50
    banks = OFFICIAL if E == 16 else ((1, 32), (3, 48), (7, 100))
    chars = _words(777, C, pad)
    chars[0], chars[1] = pad, 7  # padding only; a row that is full
    draw = torch.Generator("cuda").manual_seed(int(time.time_ns()) % 2**31)
    shapes = [(A, E), *(shape for width, n in banks for shape in ((n, E, width), (n,)))]
    parts = [0.5 * torch.randn(*s, dtype=torch.float64, device="cuda", generator=draw) for s in shapes]
    parts = [part.to(dtype).double() for part in parts]
    d = torch.randn(777, sum(n for _, n in banks), dtype=torch.float64, device="cuda", generator=draw)
    results = []
    for kind_, run in ((torch.float64, reference_char_cnn), (dtype, triton_char_cnn)):
        leaves = [part.detach().to(kind_).requires_grad_() for part in parts]
        filters = [Filter(*pair) for pair in zip(leaves[1::2], leaves[2::2], strict=True)]
        # The reference sees no pad, so it computes every window: the shortcut is checked too.
        out = run(chars, leaves[0], filters, activation, pad=None if kind_ == torch.float64 else pad)
        out.backward(d.to(kind_))
        results.append((out, [leaf.grad for leaf in leaves]))
    (exact, slopes), (ours, our_slopes) = results
    # relative to the largest output, which the sum over a window scales with
    errors = {"out": _gap(exact, ours) / max(1.0, exact.abs().max().item())}
    errors["table"] = _relative(slopes[0], our_slopes[0])
    errors["weight"] = max(_relative(a, b) for a, b in zip(slopes[1::2], our_slopes[1::2], strict=True))
    errors["bias"] = max(_relative(a, b) for a, b in zip(slopes[2::2], our_slopes[2::2], strict=True))
    return errors


def check_graph(_: str) -> dict[str, float]:
    """A captured call, replayed on new inputs, equals a direct one."""
    from elmokit.kernels.triton_lstm import triton_lstm

    R, B, D, H, P = 2, 64, 64, 128, 32
    leaves = [
        torch.randn(s, device="cuda", requires_grad=True) for s in ((R, 4 * H, D), (R, 4 * H, P), (R, 4 * H), (R, P, H))
    ]
    x = torch.randn(R, B * 3, D, device="cuda")
    state = LstmState(torch.zeros(R, B, P, device="cuda"), torch.zeros(R, B, H, device="cuda"))

    def run() -> list[Tensor]:
        out, _ = triton_lstm(x, LstmWeights(*leaves), state, (B,) * 3, LstmRules())
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    replay, results = _captured(run)
    x.normal_()
    replay()
    direct = run()
    torch.cuda.synchronize()
    return {"out": max(_relative(a, b) for a, b in zip(direct, results, strict=True))}


def _poison() -> None:
    """Fresh memory holds NaN, so that an element nobody wrote is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def _gap(a: Tensor, b: Tensor) -> float:
    gap = (a.double() - b.double()).abs().max().item()
    return gap if gap == gap else float("inf")


def _relative(a: Tensor, b: Tensor) -> float:
    gap = ((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-30)).item()
    return gap if gap == gap else float("inf")


def check(out: Path | None) -> int:
    jobs: dict[str, tuple[Callable[..., dict[str, float]], object, str]] = {
        case.name: (check_lstm, case, case.dtype) for case in _cases()
    }
    for name, activation, E, kind in (
        ("char cnn, relu", "relu", 16, "float32"),
        ("char cnn, tanh", "tanh", 16, "float32"),
        ("char cnn, 50 wide", "relu", 50, "float32"),
        ("char cnn, bfloat16", "relu", 16, "bfloat16"),
    ):
        jobs[name] = (check_char_cnn, (activation, E, kind), kind)
    jobs["cuda graph"] = (check_graph, "", "float32")
    limits = {"float32": (1e-5, 1e-4), "bfloat16": (8e-2, 6e-2), "float16": (1e-2, 1e-2)}
    rows, failed = {}, 0
    for name, result in _in_parallel({name: (job[0], job[1]) for name, job in jobs.items()}):
        forward, gradient = limits[jobs[name][2]]
        if (
            name == "char cnn, bfloat16"
        ):  # where two windows are nearly equal the maximum may move: few, but whole steps
            forward, gradient = 2e-2, 0.2
        if isinstance(result, str):
            rows[name] = {"error": result}
            failed += 1
            continue
        inference = forward if jobs[name][2] == "float32" else 2 * forward
        bounds = {key: {"out": forward, "infer": inference}.get(key, gradient) for key in result}
        bad = [key for key, value in result.items() if not value <= bounds[key]]
        failed += bool(bad)
        rows[name] = {**result, "bad": bad}
    if out:
        out.write_text(json.dumps(rows, indent=1))
    for name in jobs:
        row = rows[name]
        if "error" in row:
            print(f"{name:34} FAILED  {str(row['error'])[-300:]}")
        else:
            numbers = "  ".join(f"{key} {value:.0e}" for key, value in row.items() if key != "bad")
            print(f"{name:34} {'BAD: ' + ', '.join(row['bad']) if row['bad'] else 'ok'}  {numbers}")
    print(f"{len(jobs) - failed} of {len(jobs)} right")
    return 1 if failed else 0


# ---------------------------------------------------------------- fast?


def _variants() -> dict[str, dict[str, object]]:
    """What differs from the default plan, at the original size and 1,024 rows."""
    from elmokit.kernels.triton_math import Tile

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
    from elmokit.kernels.triton_lstm import triton_lstm
    from elmokit.kernels.triton_lstm_plan import choose_plan

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


def _words(U: int, C: int, pad: int) -> Tensor:
    """Rows with the lengths of English word types: about 7.5 bytes, few over 20; begin and end marks around them."""
    lengths = torch.exp(torch.randn(U) * 0.42 + 1.92).round().clamp(1, C - 2).long()
    rows = torch.randint(98, 123, (U, C), dtype=torch.int32)
    rows[:, 0] = 259
    place = torch.arange(C)
    rows[place == (lengths + 1)[:, None]] = 260
    rows[place > (lengths + 1)[:, None]] = pad
    return rows.cuda()


def _cnn(U: int, *, grad: bool, plain: bool) -> Callable[[], object]:
    from elmokit.kernels.triton_char_cnn import triton_char_cnn

    chars = _words(U, 50, 261)
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


def _in_parallel(jobs: dict[str, tuple[Callable[..., dict[str, float]], object]]) -> Iterator[tuple[str, object]]:
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(job, argument): name for name, (job, argument) in jobs.items()}
        for done in as_completed(waiting):
            failure = done.exception()
            yield waiting[done], done.result() if failure is None else f"{type(failure).__name__}: {failure}"


def _captured(step: Callable[[], object]) -> tuple[Callable[[], None], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


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
        replay, result = _captured(step)
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
    broken = {name: result for name, result in _in_parallel(warm) if isinstance(result, str)}
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with float64; exit 1 on failure")
    parser.add_argument("--bench", action="store_true", help="time kernels, variants and torch's own LSTM")
    parser.add_argument("--out", type=Path, help="details as JSON")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to check or time here", file=sys.stderr)
        return 2
    if options.check == options.bench:
        parser.error("choose --check or --bench")
    return check(options.out) if options.check else bench(options.out)


if __name__ == "__main__":
    sys.exit(main())
