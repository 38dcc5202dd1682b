"""The `--check` of kernels.py: each kernel in float32 beside the plain torch version in float64."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from elmokit.kernels import Filter, LstmRules, LstmState, LstmWeights, reference_char_cnn, reference_lstm
from kernels_shared import OFFICIAL, captured, in_parallel, words
from kernels_step import HIGHWAY, SAMPLED, check_highway, check_sampled


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
    from elmokit.kernels.triton._lstm_plan import choose_plan
    from elmokit.kernels.triton.lstm import triton_lstm

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
    from elmokit.kernels.triton.char_cnn import triton_char_cnn

    _poison()
    activation, E, kind = case
    dtype, pad, A, C = getattr(torch, kind), 261, 262, 50
    banks = OFFICIAL if E == 16 else ((1, 32), (3, 48), (7, 100))
    chars = words(777, C, pad)
    chars[0], chars[1] = pad, 7  # padding only; a row that is full
    draw = torch.Generator("cuda").manual_seed(int(time.time_ns()) % 2**31)
    shapes = [(A, E), *(shape for width, n in banks for shape in ((n, E, width), (n,)))]
    parts = [0.5 * torch.randn(*s, dtype=torch.float64, device="cuda", generator=draw) for s in shapes]
    parts = [part.to(dtype).double() for part in parts]
    d = torch.randn(777, sum(n for _, n in banks), dtype=torch.float64, device="cuda", generator=draw)
    if dtype == torch.float32:
        d[_nearly_equal(chars, parts)] = 0.0
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


def _nearly_equal(chars: Tensor, parts: list[Tensor]) -> Tensor:
    """Where two windows that differ are so nearly equal that rounding may decide which is the maximum. (U, sum n)

    The gradients of all others are compared: one in a million that goes to the other window is 1e-3 of all.
    """
    runs = parts[0][chars.long()].transpose(1, 2)  # (U, E, C)
    found = []
    for weight in parts[1::2]:
        products = torch.nn.functional.conv1d(runs, weight)  # (U, n, windows)
        gap = products.amax(dim=2, keepdim=True) - products
        found.append(((gap > 1e-11) & (gap < 1e-5)).any(dim=2))  # equal windows have equal gradients
    return torch.cat(found, dim=1)


def check_graph(_: str) -> dict[str, float]:
    """A captured call, replayed on new inputs, equals a direct one."""
    from elmokit.kernels.triton.lstm import triton_lstm

    R, B, D, H, P = 2, 64, 64, 128, 32
    leaves = [
        torch.randn(s, device="cuda", requires_grad=True) for s in ((R, 4 * H, D), (R, 4 * H, P), (R, 4 * H), (R, P, H))
    ]
    x = torch.randn(R, B * 3, D, device="cuda")
    state = LstmState(torch.zeros(R, B, P, device="cuda"), torch.zeros(R, B, H, device="cuda"))

    def run() -> list[Tensor]:
        out, _ = triton_lstm(x, LstmWeights(*leaves), state, (B,) * 3, LstmRules())
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    replay, results = captured(run)
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


def check(out: Path | None, *, only: list[str] | None = None) -> int:
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
    jobs |= {name: (check_sampled, name, facts[4]) for name, facts in SAMPLED.items()}
    jobs |= {name: (check_highway, name, facts[2]) for name, facts in HIGHWAY.items()}
    jobs["cuda graph"] = (check_graph, "", "float32")
    if only:
        jobs = {name: job for name, job in jobs.items() if any(part in name for part in only)}
    limits = {"float32": (1e-5, 1e-4), "bfloat16": (8e-2, 6e-2), "float16": (1e-2, 1e-2)}
    rows, failed = {}, 0
    for name, result in in_parallel({name: (job[0], job[1]) for name, job in jobs.items()}):
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
        limit = {"out": forward, "infer": inference, "sides": 100}  # the last is a number of products
        bounds = {key: limit.get(key, gradient) for key in result}
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
