"""A step of AdamW for a large tensor on CUDA, the clip of gradients on its way: one pass over memory."""
# mypy: disable-error-code="no-untyped-def, misc, untyped-decorator"

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit(do_not_specialize=["decay", "beta1", "beta2", "log_beta1", "log_beta2", "eps"])
def adamw_kernel(
    parameter, grad, mean, square, step, rate, scale, total,
    decay, beta1, beta2, log_beta1, log_beta2, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    """As torch.optim.AdamW, gradients divided by `scale`; `step`, `rate` and `scale` are single numbers in memory."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < total
    t = tl.load(step)
    lr = tl.load(rate).to(tl.float32)
    g = tl.load(grad + at, mask=live, other=0.0) / tl.load(scale)
    p = tl.load(parameter + at, mask=live, other=0.0)
    m = tl.load(mean + at, mask=live, other=0.0)
    v = tl.load(square + at, mask=live, other=0.0)
    m += (1.0 - beta1) * (g - m)
    v = beta2 * v + (1.0 - beta2) * g * g
    size = lr / (1.0 - tl.exp2(t * log_beta1))
    root = tl.sqrt(1.0 - tl.exp2(t * log_beta2))
    p -= lr * decay * p
    p -= size * m / (tl.sqrt(v) / root + eps)
    tl.store(parameter + at, p, mask=live)
    tl.store(mean + at, m, mask=live)
    tl.store(square + at, v, mask=live)


def adamw_(
    parameter: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    step: Tensor,
    rate: Tensor,
    scale: Tensor,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """Moves a float32 parameter by its gradient over `scale`; `step` counts this step already. All are dense."""
    logs = [math.log2(beta) for beta in betas]
    adamw_kernel[(triton.cdiv(parameter.numel(), BLOCK),)](
        parameter, grad, mean, square, step, rate, scale, parameter.numel(), decay, *betas, *logs, eps,
        BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip


LARGE = 2**20  # numbers of a tensor from which a launch of its own pays


@torch.no_grad()
def move_large_(optimizer: torch.optim.AdamW, scale: Tensor) -> None:
    """The large tensors' part of a step of AdamW with gradients over `scale`; their gradients are then taken away."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None or p.numel() < LARGE or not (p.is_contiguous() and p.grad.is_contiguous()):
                continue
            state = optimizer.state[p]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] += 1
            adamw_(
                p, p.grad, state["exp_avg"], state["exp_avg_sq"],
                step=state["step"], rate=group["lr"], scale=scale,
                betas=group["betas"], eps=group["eps"], decay=group["weight_decay"],
            )  # fmt: skip
            p.grad = None
