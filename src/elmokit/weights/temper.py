"""How sharp a model's predictions are, and how often <UNK> is one: two numbers fitted to text (Guo et al. 2017).

A softmax that keeps fewer words than it was trained with is surer of its predictions than it should be, and expects
<UNK> as seldom as when that stood for fewer words. Predictions get better if all scores, biases aside, are multiplied
by a number a little below 1, and if <UNK> has a larger bias.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.batch import build_batch, plan_batches
from elmokit.chars import BOS, EOS, UNK
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights.calibrate import BATCH_TOKENS
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors

ROUNDS, CLOSE = 20, 1e-3  # of Newton's method; near its end the loss is nearly a parabola
SCORES_AT_ONCE = 2**22  # more at once makes the system hand out and take back memory for every product
RANGE = 0.25, 4.0  # of the factor
PRIOR = 1.0  # on the square of <UNK>'s shift, in predictions: text without unknown words does not forbid them


class Tempering(NamedTuple):
    """What was found."""

    factor: float  # of the scores, biases aside
    unknown: float  # added to the bias of <UNK>


@torch.no_grad()
def temper(pretrained: Pretrained, sentences: Iterable[Sentence]) -> tuple[Pretrained, Tempering]:
    """The model with the scores with which it predicts these sentences best, and what was changed."""
    source, softmax = pretrained.source or "the model", pretrained.softmax
    if not isinstance(softmax, SoftmaxTensors) or pretrained.vocabulary is None:
        raise WeightsError(f"{source}: has no plain softmax with its words, so there are no scores to fit")
    if absent := [mark for mark in (BOS, EOS, UNK) if mark not in pretrained.vocabulary]:
        raise WeightsError(f"{source}: the vocabulary lacks {' '.join(absent)}; expected them among its words")
    unknown = pretrained.vocabulary.index(UNK)
    weight, bias = softmax.weight.float(), softmax.bias.float()
    seen = list(_predictions(pretrained, sentences))
    at = torch.tensor([1.0, 0.0], dtype=torch.float64)  # the factor, and the shift
    loss, slope, bend = _sums(seen, weight, bias, unknown, at)
    for _ in range(ROUNDS):
        step = torch.linalg.solve(bend, slope)
        while True:
            there = at - step
            there[0] = there[0].clamp(*RANGE)
            found = _sums(seen, weight, bias, unknown, there)
            if found[0] <= loss or step.abs().max() < CLOSE:
                break
            step = step / 2
        moved, at, (loss, slope, bend) = (there - at).abs().max(), there, found
        if moved < CLOSE:
            break
    factor, shift = at.tolist()
    bias = bias.clone()
    bias[unknown] += shift
    changed = SoftmaxTensors(weight * factor, bias)
    return replace(pretrained, softmax=changed, format=None, stored=None), Tempering(factor, shift)


def _sums(
    seen: Iterable[tuple[Tensor, Tensor]], weight: Tensor, bias: Tensor, unknown: int, at: Tensor
) -> tuple[float, Tensor, Tensor]:
    """The summed loss of what was seen, its derivatives by factor and shift (2,), and the second ones (2, 2)."""
    factor, shift = at.tolist()
    loss = PRIOR / 2 * shift**2
    slope = torch.tensor([0.0, PRIOR * shift], dtype=torch.float64)
    bend = torch.diag(torch.tensor([1e-6, PRIOR], dtype=torch.float64))
    shifted = bias.clone()
    shifted[unknown] += shift
    rows = max(1, SCORES_AT_ONCE // len(weight))
    for h, t in ((h, t) for both in seen for h, t in zip(*(torch.split(part, rows) for part in both), strict=True)):
        scores = h @ weight.T  # (n, V)
        told = torch.log_softmax(factor * scores + shifted, dim=1)
        p = told.exp()
        mean = (p * scores).sum(dim=1)  # (n,)
        right, strange = t[:, None], p[:, unknown]
        spread = (p * scores.square()).sum(dim=1) - mean.square()
        loss -= float(told.gather(1, right).double().sum())
        slope += _total(mean - scores.gather(1, right)[:, 0], strange - (t == unknown).float())
        both = _total(spread, strange * (scores[:, unknown] - mean), strange * (1 - strange))
        bend += both[[0, 1, 1, 2]].view(2, 2)
    return loss, slope, bend


def _total(*values: Tensor) -> Tensor:
    """The sum of each (n,)."""
    return torch.stack(values).double().sum(dim=1)


def _predictions(pretrained: Pretrained, sentences: Iterable[Sentence]) -> Iterator[tuple[Tensor, Tensor]]:
    """What the softmax reads (N, P) and should say (N,), batch by batch, for each direction."""
    model, codec = pretrained.build(), pretrained.codec.build(pretrained.config.tokens.max_characters)
    assert pretrained.vocabulary is not None
    numbers = {word: k for k, word in enumerate(pretrained.vocabulary)}
    unknown = numbers[UNK]
    for batch in plan_batches(sentences, batch_tokens=BATCH_TOKENS):
        tokens = build_batch([sentence for _, sentence in batch], codec)
        targets = torch.full(tokens.index.shape, unknown)  # (B, T)
        for row, (_, sentence) in zip(targets, batch, strict=True):
            said = [numbers[BOS], *(numbers.get(word, unknown) for word in sentence.tokens), numbers[EOS]]
            row[: len(said)] = torch.tensor(said)
        stack, _ = model(torch.from_numpy(tokens.types), torch.from_numpy(tokens.index), tokens.lengths)
        mask = stack.mask[:, 1:]  # (B, T - 1)
        halves = stack.values[-1].chunk(len(model.config.directions), dim=-1)
        for direction, half in zip(model.config.directions, halves, strict=True):
            ahead = direction == "forward"
            hidden, wanted = (half[:, :-1], targets[:, 1:]) if ahead else (half[:, 1:], targets[:, :-1])
            yield hidden[mask], wanted[mask]
