"""Checks of the fused elementwise work of a training step, for kernels.py --check: beside plain torch in float64."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elmokit.nn.sampling import LogUniformSampler
from elmokit.nn.softmax import _Sampled

SAMPLED = {  # name: positions, vocabulary, negatives, width, type, way of sampling
    "sampled softmax": (3000, 20000, 8192, 256, "float32", "distinct"),
    "sampled softmax, published": (777, 5000, 1000, 129, "float32", "published"),
    "sampled softmax, repeated": (777, 5000, 1000, 512, "float32", "repeated"),
    "sampled softmax, 20,000 negatives": (500, 40000, 20000, 64, "float32", "distinct"),
    "sampled softmax, bfloat16": (3000, 20000, 8192, 256, "bfloat16", "distinct"),
}
HIGHWAY = {  # name: words, width, type
    "highway": (3000, 2048, "float32"),
    "highway, odd sizes": (777, 333, "float32"),
    "highway, bfloat16": (3000, 2048, "bfloat16"),
}
Errors = dict[str, float]


def check_sampled(name: str) -> Errors:
    from elmokit.kernels.triton import sampled

    n, V, S, P, kind, sampling = SAMPLED[name]
    sampled.SCORES_AT_ONCE = 2**22  # several chunks
    dtype, draw = getattr(torch, kind), _generator()
    parts = [torch.randn(s, dtype=torch.float64, device="cuda", generator=draw) for s in ((n, P), (V, P), (V,))]
    parts[0], parts[1] = parts[0].to(dtype).double(), (parts[1] * P**-0.5).to(dtype).double()
    targets = (V * torch.rand(n, device="cuda", generator=draw) ** 4).long().clamp_(max=V - 1)  # some often
    sampler = LogUniformSampler(V, S, sampling=sampling, device="cuda")
    negatives = sampler.draw(torch.rand(sampler.noise(), device="cuda", generator=draw))

    def ours(*leaves: Tensor) -> Tensor:
        loss: Tensor = sampled.SampledLoss.apply(*leaves, targets, *negatives)
        return loss / n

    def plain(*leaves: Tensor) -> Tensor:
        loss: Tensor = _Sampled.apply(*leaves, targets, negatives)
        return loss / n

    return _errors(plain, ours, parts, [dtype, torch.float32, torch.float32], ("hidden", "weight", "bias"))


def check_highway(name: str) -> Errors:
    from elmokit.kernels.triton.pointwise import FusedHighway

    n, F, kind = HIGHWAY[name]
    dtype, draw = getattr(torch, kind), _generator()
    shapes = ((n, F), (F, F), (F,), (F, F), (F,))
    scales = (1.0, F**-0.5, 0.5, F**-0.5, 0.5)
    parts = [
        (scale * torch.randn(s, dtype=torch.float64, device="cuda", generator=draw)).to(dtype).double()
        for s, scale in zip(shapes, scales, strict=True)
    ]
    mine = [part.to(dtype) for part in parts]
    # Rounding decides on which side of the ReLU's corner a product lies that is nearly zero, and a gradient then comes
    # through or not: a handful of millions in float32. The exact version takes the same sides as the kernel's product.
    side = torch.nn.functional.linear(*mine[:3]) > 0  # (n, F)
    exact = torch.nn.functional.linear(*parts[:3])
    moved = exact.abs()[side != (exact > 0)]
    if len(moved) and moved.max() > 1e-5:  # sums are float32 in both types
        raise AssertionError(f"{moved.max():.1e} lies on the wrong side of the ReLU's corner; 1e-5 may")

    def plain(x: Tensor, w_t: Tensor, b_t: Tensor, w_g: Tensor, b_g: Tensor) -> Tensor:
        t = torch.nn.functional.linear(x, w_t, b_t)
        g = torch.sigmoid(torch.nn.functional.linear(x, w_g, b_g))
        return g * torch.where(side, t, 0.0) + (1 - g) * x

    errors = _errors(plain, FusedHighway.apply, parts, [dtype] * 5, ("x", "w_t", "b_t", "w_g", "b_g"))
    return errors | {"sides": float(len(moved))}


def _errors(
    plain: Callable[..., Tensor],
    ours: Callable[..., Tensor],
    parts: Sequence[Tensor],
    types: Sequence[torch.dtype],
    names: Sequence[str],
) -> Errors:
    """Relative errors of the result and of each gradient; memory that nobody wrote holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    exact = [part.clone().requires_grad_() for part in parts]
    mine = [part.to(kind).requires_grad_() for part, kind in zip(parts, types, strict=True)]
    expected, found = plain(*exact), ours(*mine)
    d = torch.randn(expected.shape, dtype=torch.float64, device="cuda", generator=_generator()).to(found.dtype)
    expected.backward(d.double())
    found.backward(d)
    errors = {"out": _relative(expected, found)}
    return errors | {
        name: _relative(theirs.grad, own.grad) for name, theirs, own in zip(names, exact, mine, strict=True)
    }


def _generator() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(int(time.time_ns()) % 2**31)


def _relative(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None
    assert b is not None
    gap = ((a.double() - b.double()).norm() / a.double().norm().clamp_min(1e-30)).item()
    return gap if gap == gap else float("inf")
