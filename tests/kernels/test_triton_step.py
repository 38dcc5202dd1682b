"""The fused elementwise work of a training step against plain torch. On a GPU, or with TRITON_INTERPRET=1 anywhere."""

import os

import pytest
import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and not INTERPRETED:
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from elmokit.kernels.triton import adamw, sampled  # noqa: E402
from elmokit.kernels.triton.pointwise import FusedHighway, add_rows_  # noqa: E402
from elmokit.nn.char_cnn import Highway  # noqa: E402
from elmokit.nn.sampling import LogUniformSampler  # noqa: E402
from elmokit.nn.softmax import _Sampled  # noqa: E402


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    source = torch.Generator().manual_seed(seed + sum(shape))
    return (scale * torch.randn(*shape, generator=source, dtype=torch.float64)).to(DEVICE)


def check_near(ours: Tensor, exact: Tensor, near: float) -> None:
    assert (ours.double() - exact).norm() <= near * exact.norm() + 1e-12


@pytest.mark.parametrize("sampling", ["distinct", "repeated", "published"])
@pytest.mark.parametrize(("n", "V", "S", "P", "at_once"), [(37, 90, 40, 24, 2**27), (300, 200, 129, 8, 2**14)])
def test_sampled_loss(sampling, n: int, V: int, S: int, P: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "SCORES_AT_ONCE", at_once)
    hidden, weight, bias = draw(n, P), draw(V, P), draw(V)
    targets = torch.randint(0, V, (n,), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    sampler = LogUniformSampler(V, S, sampling=sampling, device=DEVICE)
    negatives = sampler.draw(torch.rand(sampler.noise(), generator=torch.Generator().manual_seed(4)).to(DEVICE))
    assert torch.isin(targets, negatives.ids).any()  # some are accidental hits
    exact = [t.clone().requires_grad_() for t in (hidden, weight, bias)]
    mine = [t.float().requires_grad_() for t in (hidden, weight, bias)]
    expected = _Sampled.apply(*exact, targets, negatives)
    found = sampled.SampledLoss.apply(*mine, targets, *negatives)
    check_near(found, expected, 1e-5)
    (expected * 0.3).backward()
    (found * 0.3).backward()
    for ours, theirs in zip(mine, exact, strict=True):
        check_near(ours.grad, theirs.grad, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n", "F"), [(5, 24), (131, 300)])
def test_highway(n: int, F: int, dtype: torch.dtype) -> None:
    layer = Highway(F).double().to(DEVICE)
    x, d = draw(n, F).to(dtype).double().requires_grad_(), draw(n, F, seed=1).to(dtype).double()
    exact = [x, layer.transform.weight, layer.transform.bias, layer.gate.weight, layer.gate.bias]
    with torch.no_grad():
        for t in exact[1:]:
            t.copy_(t.to(dtype))
    mine = [t.detach().to(dtype).requires_grad_() for t in exact]
    near = 1e-5 if dtype == torch.float32 else 2e-2
    expected, found = layer(x), FusedHighway.apply(*mine)
    check_near(found, expected, near)
    expected.backward(d)
    found.backward(d.to(dtype))
    for ours, theirs in zip(mine, exact, strict=True):
        check_near(ours.grad, theirs.grad, near)


def test_adamw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps with clipped gradients, small tensors beside large ones, like torch's own."""
    monkeypatch.setattr(adamw, "LARGE", 50)
    mine, exact = (
        [torch.nn.Parameter(draw(n, 7).to(kind)) for n in (3, 9, 40)] for kind in (torch.float32, torch.float64)
    )
    options = {"betas": (0.9, 0.98), "eps": 1e-8}
    rate = torch.tensor(0.01, device=DEVICE)
    movers = [
        torch.optim.AdamW(
            [{"params": those[:2], "weight_decay": 0.3}, {"params": those[2:], "weight_decay": 0.0}], lr=lr, **options
        )
        for those, lr in ((mine, rate), (exact, 0.01))
    ]
    for k in range(3):
        scale = torch.tensor(1.0 + k, device=DEVICE)
        for ours, theirs in zip(mine, exact, strict=True):
            theirs.grad = draw(*theirs.shape, seed=k) / scale
            ours.grad = (theirs.grad * scale).float()
        adamw.move_large_(movers[0], scale)
        assert [p.grad is None for p in mine] == [False, True, True]
        mine[0].grad /= scale
        for mover in movers:
            mover.step()
    for ours, theirs in zip(mine, exact, strict=True):
        check_near(ours, theirs, 1e-6)
        for name, value in movers[0].state[ours].items():
            check_near(value, movers[1].state[theirs][name], 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("n", "P"), [(1, 8), (70, 600)])
def test_rows_are_added(n: int, P: int, dtype: torch.dtype) -> None:
    rows, scale = draw(n, P).to(dtype), torch.tensor(0.7, device=DEVICE)
    index = torch.randint(0, 9, (n,), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    total = draw(9, P).float()
    expected = total.double().index_add(0, index, rows.double() * 0.7)
    add_rows_(total, index, rows, scale=scale)
    check_near(total, expected, 1e-6)
