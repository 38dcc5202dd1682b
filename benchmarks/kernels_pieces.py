"""The `--pieces` of kernels.py: the elementwise work of a training step, piece by piece, plain and fused.

Sizes are those of a preset with 1,024 rows of 20 steps, 9,216 word types and a vocabulary of 65,536. "MB" is what must
go through memory at least, "TB/s" that over the fused time. A sampled softmax holds its three products, too.
"""

import os
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from elmokit.nn.char_cnn import Highway
from elmokit.nn.sampling import LogUniformSampler
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.config import load_config
from elmokit.pretrain.objective import Objective, _Cast, _Gather
from elmokit.pretrain.optimisation import build_optimizer, clipped_step
from kernels_bench import _cnn, _time

R, N, U, V, S, F = 2, 20480, 9216, 65536, 8192, 2048


def pieces(preset: str) -> Iterator[tuple[str, Callable[[], Callable[[], object]], float]]:
    """Each piece with what makes it; bfloat16 as in training."""
    config = load_config(preset, flags={"vocab_size": V})
    P, n = config.projection_dim, R * N
    sizes = [p.numel() for p in Objective(config.model(), config.output(), V).parameters()]
    inner = sum(sizes) - V * P - V

    def highway() -> Callable[[], object]:
        layer, x, d = Highway(F).bfloat16().cuda(), _random(U, F).requires_grad_(), _random(U, F)
        return lambda: torch.autograd.grad(layer(x), [x, *layer.parameters()], d)

    def softmax() -> Callable[[], object]:
        layer = Softmax(V, P).cuda()
        torch.nn.init.normal_(layer.weight, std=P**-0.5)
        hidden = _random(n, P).requires_grad_()
        targets = (V * torch.rand(n, device="cuda") ** 6).long().clamp_(max=V - 1)
        sampler = LogUniformSampler(V, S, device="cuda")
        negatives = sampler.draw(torch.rand(1, device="cuda"))
        return lambda: torch.autograd.grad(layer.loss(hidden, targets, negatives), [hidden, *layer.parameters()])

    def gather() -> Callable[[], object]:
        vectors, d = _random(U, P).requires_grad_(), _random(R, N, P)
        which = (U * torch.rand(R, N, device="cuda") ** 6).long().clamp_(max=U - 1)
        return lambda: torch.autograd.grad(_Gather.apply(vectors, which), vectors, d)

    def casts() -> Callable[[], object]:
        objective = Objective(config.model(), config.output(), V, device="cuda")
        given = list(objective.windows.parameters())
        grads = [torch.randn_like(p).bfloat16() for p in given]

        def run() -> object:
            wanted = os.environ["ELMOKIT_FUSED_STEP"] == "1"
            cast = _Cast.apply(torch.bfloat16, *given) if wanted else [p.bfloat16() for p in given]
            return torch.autograd.grad(cast, given, grads)

        return run

    def optimizer() -> Callable[[], object]:
        objective = Objective(config.model(), config.output(), V, device="cuda")
        mover = build_optimizer(config, objective, cuda=True)
        for p in objective.parameters():
            p.data.normal_()
            p.grad = torch.randn_like(p)
        return lambda: clipped_step(mover, objective.parameters(), 1.0)

    yield "highway", highway, 11 * U * F * 2 / 1e6
    yield "sampled softmax", softmax, (4 * n * S * 2 + 7 * n * P * 2 + 2 * n * P * 4 + V * P * 4) / 1e6
    yield "word vectors to places", gather, (3 * n * P * 2 + 3 * U * P * 4) / 1e6
    yield "casts of weights", casts, 12 * inner / 1e6
    yield "clip and AdamW", optimizer, 36 * sum(sizes) / 1e6


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def bench_pieces(presets: list[str]) -> int:
    from elmokit.kernels.triton import sampled

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; forward + backward, as CUDA graphs")
    print("preset    piece                           plain ms  fused ms       MB   TB/s")
    for preset in presets:
        for name, make, size in pieces(preset):
            rows = [(name, size, sampled.SCORES_AT_ONCE)]
            if name == "sampled softmax":
                rows = [(f"{name}, 2^{k} at once", size, 2**k) for k in (24, 25, 26, 27, 28)]
            os.environ["ELMOKIT_FUSED_STEP"] = "0"
            plain = _time(make)
            os.environ["ELMOKIT_FUSED_STEP"] = "1"
            for row, megabytes, at_once in rows:
                usual, sampled.SCORES_AT_ONCE = sampled.SCORES_AT_ONCE, at_once
                fused = _time(make)
                sampled.SCORES_AT_ONCE = usual
                told = [f"{t:9.3f}" if isinstance(t, float) else t[:80] for t in (plain, fused)]
                rate = f"{megabytes / fused / 1e3:6.2f}" if isinstance(fused, float) else ""
                print(f"{preset:9s} {row:30s} {told[0]} {told[1]} {megabytes:8.0f} {rate}", flush=True)
    _convolutions()
    return 0


def _convolutions() -> None:
    """The character convolutions with other blocks: words, filters, elements of a window."""
    from elmokit.kernels.triton import char_cnn

    usual = char_cnn._blocks
    for words, filters in ((64, 128), (64, 64), (32, 128)):

        def blocks(n: int, window: int, dtype: torch.dtype, w: int = words, f: int = filters) -> tuple[int, int, int]:
            return w, min(f, usual(n, window, dtype)[1]), usual(n, window, dtype)[2]

        char_cnn._blocks = blocks
        told = [_time(lambda g=grad: _cnn(U, grad=g, plain=False)) for grad in (True, False)]
        ms = " | ".join(f"{t:.3f}" if isinstance(t, float) else t[:80] for t in told)
        print(f"convolutions, {words} x {filters}: forward + backward | forward ms {ms}", flush=True)
    char_cnn._blocks = usual
