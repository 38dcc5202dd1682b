"""How well a biLM predicts each word of whole sentences, over the full vocabulary.

A sentence of n words is n + 1 predictions each way: forward `w_1 .. w_n </S>`, backward `w_n .. w_1 <S>`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, Direction, State
from elmokit.nn.softmax import AdaptiveSoftmax, Softmax


class Scores(NamedTuple):
    """Negative log probabilities in nats. Column k stands between positions k and k + 1 of the bounded sentence."""

    forward: Tensor | None  # (B, T - 1): position k + 1 given those before it
    backward: Tensor | None  # (B, T - 1): position k given those after it
    mask: Tensor  # (B, T - 1) bool
    state: State  # after the last position, for carried state


@torch.no_grad()
def score(
    model: BiLM,
    softmax: Softmax | AdaptiveSoftmax,
    types: Tensor,
    index: Tensor,
    lengths: NDArray[np.int64],
    targets: Tensor,
    *,
    state: State | None = None,
) -> Scores:
    """Scores of a batch whose targets (B, T) are vocabulary ids at every position, boundaries included."""
    stack, ended = model(types, index, lengths, state=state)
    nll = losses(stack, model.config.directions, softmax, targets)
    return Scores(nll.get("forward"), nll.get("backward"), stack.mask[:, 1:], ended)


@torch.no_grad()
def losses(
    stack: LayerStack, directions: Sequence[Direction], softmax: Softmax | AdaptiveSoftmax, targets: Tensor
) -> dict[Direction, Tensor]:
    """The same from a batch already run, boundaries still in it: (B, T - 1) for each direction, zero at padding."""
    mask = stack.mask[:, 1:]  # (B, T - 1)
    halves = stack.values[-1].chunk(len(directions), dim=-1)  # R times (B, T, P)
    results: dict[Direction, Tensor] = {}
    for direction, hidden in zip(directions, halves, strict=True):
        seen, wanted = (hidden[:, :-1], targets[:, 1:]) if direction == "forward" else (hidden[:, 1:], targets[:, :-1])
        nll = softmax.nll(seen[mask], wanted[mask])  # (real predictions,)
        results[direction] = torch.zeros(mask.shape, dtype=nll.dtype, device=nll.device).masked_scatter(mask, nll)
    return results
