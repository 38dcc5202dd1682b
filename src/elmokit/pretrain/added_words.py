"""More words for a softmax to predict: where their rows begin.

A word that the softmax lacks gets the row that fits its spelling. Over the words it has, rows are predicted from token
vectors, which know the letters alone, and biases from these and the words' frequencies, both by ridge regression.
<UNK>, which stood for these words too, becomes as much less likely. Training then moves the new rows with all others.
"""

import math

import torch
from torch import Tensor

from elmokit.weights import SoftmaxTensors

RIDGE = 1e-2  # penalty, as a share of the inputs' mean square


@torch.no_grad()
def add_rows(
    softmax: SoftmaxTensors, vectors: Tensor, counts: Tensor, *, special: int, unknown: int, rest: float
) -> SoftmaxTensors:
    """A softmax over the words of `vectors` (V, P), `counts` (V,): its own come first, the others are new.

    The first `special` words are marks, not words, and say nothing about the others. Row `unknown` stays for the words
    that are still outside, of which the text has `rest`.
    """
    known = len(softmax.bias)
    vectors = vectors.double()
    x = torch.cat([vectors, torch.ones_like(vectors[:, :1])], dim=1)  # (V, P + 1)
    z = torch.cat([x, counts.to(x).add(1).log()[:, None]], dim=1)  # (V, P + 2)
    weight, bias = softmax.weight.to(x), softmax.bias.to(x)
    own = slice(special, known)
    rows = x[known:] @ _ridge(x[own], weight[own])  # (V - known, P)
    biases = z[known:] @ _ridge(z[own], bias[own, None])  # (V - known, 1)
    bias = bias.clone()
    bias[unknown] += math.log((rest + 1) / (rest + 1 + float(counts[known:].sum())))
    return SoftmaxTensors(torch.cat([weight, rows]).float(), torch.cat([bias, biases[:, 0]]).float())


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    """The matrix B for which x B is nearest to y."""
    gram = x.mT @ x
    penalty = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    found: Tensor = torch.linalg.solve(gram + penalty, x.mT @ y)
    return found
