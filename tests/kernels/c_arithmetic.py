"""What the C of elmokit.kernels.cpu.c computes, in torch: sums in int64, all else in float32, step by step.

Nothing is packed, shared out or looked up here; so results should be the same bit for bit, whatever C does of that.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from elmokit.kernels import Filter, LstmRules, LstmState
from elmokit.kernels.char_cnn import word_lengths
from elmokit.kernels.cpu.c import Linear, as_arrays
from elmokit.kernels.cpu.int8 import Int8Matrix, quantise
from elmokit.native import matrices
from elmokit.native.matrices import UNITS


def sixteen_bits(weights: Tensor) -> tuple[Tensor, Tensor]:
    """As int16 and scales, in torch's tensors."""
    whole, scale = matrices.sixteen_bits(as_arrays(weights))
    return torch.from_numpy(whole), torch.from_numpy(scale)


def plus_product(total: Tensor | float, x: Tensor, y: Tensor | float) -> Tensor:
    """Rounded once: doubles hold a product of floats."""
    return (total + x.double() * y).float()


def exponential(x: Tensor) -> Tensor:
    y = x.clamp(-87.0, 87.0)
    n = torch.round(y.double() * _float(1.44269504)).float()
    r = plus_product(plus_product(y, n, -0.693359375), n, _float(2.12194440e-4))
    p = torch.full_like(r, 1.9875691500e-4)
    for part in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = plus_product(_float(part), p, r)
    return (plus_product(r, p, r * r) + 1.0) * ((n.int() + 127) << 23).view(torch.float32)


def _float(x: float) -> float:
    """The nearest float32."""
    return torch.tensor(x, dtype=torch.float32).item()


def sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + exponential(-x))


def tanh(x: Tensor) -> Tensor:
    return 2.0 / (1.0 + exponential(x * -2.0)) - 1.0


def gated_tanh(gate: Tensor, x: Tensor) -> Tensor:
    low = exponential(x * -2.0)
    return (1.0 - low) / ((1.0 + exponential(-gate)) * (1.0 + low))


def whole_numbers(weights: Tensor, kind: str) -> Int8Matrix:
    """Rows as int8 or int16 with a scale each."""
    return Int8Matrix(*(quantise(weights) if kind == "int8" else sixteen_bits(weights.bfloat16())))


def steps_of(matrix: Int8Matrix, steps: int) -> int:
    """The largest number of a row: for int8 what is given."""
    return UNITS if matrix.values.dtype == torch.int16 else steps


def sums(whole: Tensor, matrix: Int8Matrix) -> Tensor:
    """Whole numbers (M, K) times a matrix, exactly, then as float32. (M, N)"""
    exact = whole.long() @ matrix.values.long().t()
    assert not exact.numel() or exact.abs().max() < 2**31, "else C would not hold it"
    return exact.float()


def product(x: Tensor, matrix: Int8Matrix, steps: int) -> Tensor:
    """Rows (M, K), each in units of its largest number over `steps`. (M, N)"""
    steps = steps_of(matrix, steps)
    largest = x.abs().amax(dim=1, keepdim=True).clamp_min(1e-30)  # (M, 1)
    whole = torch.round(x * (torch.tensor(float(steps)) / largest))  # (M, K)
    return sums(whole, matrix) * (matrix.scale / steps) * largest


def projected(shown: Tensor, matrix: Int8Matrix, most: int) -> Tensor:
    """Numbers within +-1: for int8 as two whole ones each. (M, N)"""
    if matrix.values.dtype == torch.int16:
        return sums(torch.round(shown * float(UNITS)), matrix) * (matrix.scale / UNITS)
    steps, fine = most // 2, most.bit_length()
    q = torch.round(shown * float(steps << fine)).long()  # (M, K)
    near = (q + (1 << (fine - 1))) >> fine
    rest = q - (near << fine)
    assert not len(q) or max(near.abs().max(), rest.abs().max() - 1) <= steps, "else a byte would not hold it"
    return (sums(rest, matrix) * (1.0 / (1 << fine)) + sums(near, matrix)) * (matrix.scale / steps)


def emulated_direction(
    x: Tensor,
    matrices: tuple[Int8Matrix, Int8Matrix, Int8Matrix | None],
    bias: Tensor,
    state: LstmState,
    steps: tuple[int, ...],
    rules: LstmRules,
    *,
    keep: Tensor | None,
    most: int,
) -> tuple[Tensor, LstmState]:
    """One direction: x (N, D), a state of (B, P) and (B, H), keep (N)."""
    w_x, w_h, w_p = matrices
    h, c = state.h.clone(), state.c.clone()
    i, j, f, o = bias.chunk(4)
    bias = torch.cat([i, j, f + rules.forget_bias, o])
    out = torch.empty(len(x), h.shape[1])
    at = 0
    for rows in steps:
        if keep is not None:
            h[:rows] *= keep[at : at + rows, None]
            c[:rows] *= keep[at : at + rows, None]
        inputs = product(x[at : at + rows], w_x, most // 2) + bias  # (rows, 4H)
        i, j, f, o = (product(h[:rows], w_h, most // 2) + inputs).chunk(4, dim=1)
        cell = sigmoid(f) * c[:rows] + gated_tanh(i, j)  # (rows, H)
        c[:rows] = cell = cell if rules.cell_clip is None else cell.clamp(-rules.cell_clip, rules.cell_clip)
        made = gated_tanh(o, cell)
        if w_p is not None:
            made = projected(made, w_p, most)  # (rows, P)
            made = made if rules.proj_clip is None else made.clamp(-rules.proj_clip, rules.proj_clip)
        h[:rows] = out[at : at + rows] = made
        at += rows
    return out, LstmState(h, c)


def emulated_tokens(
    types: Tensor,
    characters: Tensor,
    filters: Sequence[Filter],
    highways: Sequence[tuple[Linear, Linear]],
    projection: Linear | None,
    *,
    pad: int | None,
    most: int,
    activation: str = "relu",
    words: Tensor | None = None,
) -> Tensor:
    """Words (U, C), perhaps with their own vectors (U, D), to vectors (U, P). Behind a ReLU all steps are positive."""
    lengths, C = word_lengths(types, pad).tolist() if filters else [], types.shape[1]
    columns = []
    for bank in filters:
        width = bank.weight.shape[2]
        given = torch.einsum("ae,new->naw", characters.double(), bank.weight.double()).float()  # (n, A, width)
        given = given.permute(1, 2, 0)  # (A, width, n)
        made = torch.empty(len(types), len(bank.bias))
        for row, word, length in zip(made, types.long(), lengths, strict=True):
            windows = min(C, length + width) - width + 1
            total = torch.zeros(windows, len(bank.bias))
            for k in range(width):
                total = total + given[word[k : k + windows], k]  # (windows, n)
            row.copy_(total.amax(dim=0))
        columns.append(torch.relu(made + bank.bias) if activation == "relu" else tanh(made + bank.bias))
    x = torch.cat(columns, dim=1) if columns else torch.zeros(len(types), 0)  # (U, F)
    steps = most if activation == "relu" else most // 2
    for transform, gate in highways:
        g = sigmoid(product(x, gate.matrix, steps) + gate.bias)
        x = g * torch.relu(product(x, transform.matrix, steps) + transform.bias) + (1.0 - g) * x
    if words is not None:
        x, steps = torch.cat([words, x], dim=1), most // 2
    return x if projection is None else product(x, projection.matrix, steps) + projection.bias
