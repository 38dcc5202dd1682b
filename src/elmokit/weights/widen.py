"""A wider model that computes what the narrow one does, to be trained on from there.

Each layer keeps its old cells and outputs. New cells and outputs read everything, with fresh weights; old ones read
nothing new, by weights of zero. So the old numbers of each vector and all predictions stay as they were, until training
makes use of the new ones.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors


def widen(
    pretrained: Pretrained, *, cell_dim: int | None = None, projection_dim: int | None = None, seed: int = 1
) -> Pretrained:
    """The model with more cells in each LSTM, more numbers in each direction's vector, or both."""
    config = _wider(pretrained, cell_dim or pretrained.config.lstm.cell_dim, projection_dim)
    fresh = BiLM(config)
    initialise(fresh, seed=seed)
    tensors = {name: _grown(name, old, fresh.state_dict()[name]) for name, old in _plain(pretrained.tensors).items()}
    softmax = pretrained.softmax
    if softmax is not None:
        assert isinstance(softmax, SoftmaxTensors)
        weight = torch.zeros(len(softmax.weight), config.lstm.projection_dim)  # (V, P)
        weight[:, : softmax.weight.shape[1]] = softmax.weight
        softmax = SoftmaxTensors(weight, softmax.bias.float())
    return replace(pretrained, config=config, tensors=tensors, softmax=softmax, format=None, stored=None)


def _wider(pretrained: Pretrained, cells: int, width: int | None) -> BiLMConfig:
    config, source = pretrained.config, pretrained.source or "the model"
    width = width or config.lstm.projection_dim
    if not (config.lstm.project and config.tokens.project):
        raise WeightsError(f"{source}: has no projections, so it cannot be made wider")
    if pretrained.softmax is not None and not isinstance(pretrained.softmax, SoftmaxTensors):
        raise WeightsError(
            f"{source}: has an adaptive softmax, which cannot be made wider; leave it out (softmax=False, --no-softmax)"
        )
    for name, now, wanted in (
        ("cell-dim", config.lstm.cell_dim, cells),
        ("projection-dim", config.lstm.projection_dim, width),
    ):
        if wanted < now:
            raise WeightsError(f"{name} {wanted} is less than {source} has, {now}; a model can only be made wider")
    lstm = replace(config.lstm, cell_dim=cells, projection_dim=width)
    return replace(config, tokens=replace(config.tokens, projection_dim=width), lstm=lstm)


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in tensors.items()}


def _grown(name: str, old: Tensor, fresh: Tensor) -> Tensor:
    """The old numbers in their place among fresh ones, and zeros where an old output would read a new input."""
    if old.shape == fresh.shape:
        return old
    gates = 4 if name.startswith("lstm.") and not name.endswith("projection") else 1
    rows = 1 if name.startswith("lstm.") else 0  # the axis of outputs; directions come before it
    before, after = _by_gate(old, gates, rows), _by_gate(fresh.clone(), gates, rows)
    kept = after.narrow(rows + 1, 0, before.shape[rows + 1])  # the old outputs
    kept.zero_()
    inner = kept
    for axis in range(rows + 2, before.ndim):
        inner = inner.narrow(axis, 0, before.shape[axis])
    inner.copy_(before)
    return after.reshape(fresh.shape)


def _by_gate(values: Tensor, gates: int, rows: int) -> Tensor:
    """(..., gates * n, ...) as (..., gates, n, ...)."""
    shape = values.shape
    return values.reshape(*shape[:rows], gates, shape[rows] // gates, *shape[rows + 1 :])
