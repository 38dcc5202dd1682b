"""How sharp a model's predictions are: one factor for the scores of its softmax, fitted to text (Guo et al. 2017).

A softmax that keeps fewer words than it was trained with is surer of its predictions than it should be. They get better
if all scores, biases aside, are multiplied by a number a little below 1.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from elmokit.batch import build_batch, plan_batches
from elmokit.chars import BOS, EOS, UNK
from elmokit.errors import WeightsError
from elmokit.text import Sentence
from elmokit.weights.calibrate import BATCH_TOKENS
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors

ROUNDS, CLOSE = 12, 1e-3  # of Newton's method, between bounds; near its end the loss is nearly a parabola
SCORES_AT_ONCE = 2**22  # more at once makes the system hand out and take back memory for every product
RANGE = 0.25, 4.0  # of the factor


@torch.no_grad()
def temper(pretrained: Pretrained, sentences: Iterable[Sentence]) -> tuple[Pretrained, float]:
    """The model with its softmax's weights times the factor with which it predicts these sentences best; the factor."""
    source, softmax = pretrained.source or "the model", pretrained.softmax
    if not isinstance(softmax, SoftmaxTensors) or pretrained.vocabulary is None:
        raise WeightsError(f"{source}: has no plain softmax with its words, so there are no scores to fit")
    if absent := [mark for mark in (BOS, EOS, UNK) if mark not in pretrained.vocabulary]:
        raise WeightsError(f"{source}: the vocabulary lacks {' '.join(absent)}; expected them among its words")
    weight, bias = softmax.weight.float(), softmax.bias.float()
    seen = list(_predictions(pretrained, sentences))
    factor, (low, high) = 1.0, RANGE
    for _ in range(ROUNDS):
        slope, bend = (sum(part) for part in zip(*(_moments(h, t, weight, bias, factor) for h, t in seen), strict=True))
        low, high = (low, factor) if slope > 0 else (factor, high)
        step = slope / bend if bend > 0 else math.inf
        before, factor = factor, factor - step
        if not low < factor < high:
            factor = (low + high) / 2
        if abs(factor - before) < CLOSE:
            break
    changed = SoftmaxTensors(weight * factor, bias)
    return replace(pretrained, softmax=changed, format=None, stored=None), factor


def _moments(hidden: Tensor, targets: Tensor, weight: Tensor, bias: Tensor, factor: float) -> tuple[float, float]:
    """First and second derivative, by the factor, of the summed loss of hidden (N, P) with targets (N,)."""
    slope = bend = 0.0
    rows = max(1, SCORES_AT_ONCE // len(weight))
    for h, t in zip(torch.split(hidden, rows), torch.split(targets, rows), strict=True):
        scores = h @ weight.T  # (n, V)
        p = torch.softmax(factor * scores + bias, dim=1)
        mean = (p * scores).sum(dim=1)  # (n,)
        slope += float((mean - scores.gather(1, t[:, None])[:, 0]).double().sum())
        bend += float(((p * scores.square()).sum(dim=1) - mean.square()).double().sum())
    return slope, bend


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
