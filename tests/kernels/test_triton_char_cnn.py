"""The fused character convolutions against torch's own. On a GPU, or with TRITON_INTERPRET=1 on any machine."""

import os

import pytest
import torch
from cnn_problems import PAD, bank, draw, naive_char_cnn

from elmokit.kernels import Activation

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytest.importorskip("triton", reason="Triton is not installed")
if DEVICE == "cpu" and not INTERPRETED:
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from elmokit.kernels.triton.char_cnn import triton_char_cnn  # noqa: E402


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("pad", [PAD, None])
@pytest.mark.parametrize(
    ("U", "C", "E", "banks"),
    [(70, 12, 16, [(1, 32), (2, 20), (7, 40)]), (9, 6, 5, [(3, 9), (4, 150)]), (33, 9, 50, [(1, 8), (3, 40)])],
)
def test_equals_convolution(
    activation: Activation, pad: int | None, U: int, C: int, E: int, banks: list[tuple[int, int]]
) -> None:
    chars, parts = draw(U, C, E, banks, device=DEVICE)
    exact = [part.clone().requires_grad_() for part in parts]
    mine = [part.float().requires_grad_() for part in parts]
    expected = naive_char_cnn(chars, exact[0], bank(exact), activation)
    out = triton_char_cnn(chars, mine[0], bank(mine), activation, pad=pad)
    assert (out - expected).abs().max() < 1e-5
    with torch.no_grad():
        assert torch.equal(out, triton_char_cnn(chars, mine[0], bank(mine), activation, pad=pad))
    d = torch.randn_like(expected)
    expected.backward(d)
    out.backward(d.float())
    for ours, theirs in zip(mine, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert (ours.grad - theirs.grad).norm() < 1e-4 * theirs.grad.norm()
