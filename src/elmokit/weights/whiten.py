"""The same model in another basis, in which its vectors spread evenly in all directions.

A trained model's vectors lie mostly along a few directions, so that any two of them look alike and their cosine says
less. A matrix A turns each direction's part h of every LSTM layer's vectors into A h. The matrices that make h are
multiplied by A and those that read it by A's inverse, so nothing else in the model changes: not its cells, not its
predictions. All LSTM layers share A, since skip connections add one to the next, and both directions do, since they
share a softmax. Token vectors (layer 0) stay as they are.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.weights.pretrained import Pretrained, SoftmaxTensors

LEAST = 1e-4  # a direction counts as no weaker than this share of the strongest


@torch.no_grad()
def whiten(pretrained: Pretrained, moments: Mapping[str, Tensor], *, strength: float = 1.0) -> Pretrained:
    """The model in a basis in which these second moments (of `weights.calibrate`) are even in all directions but one.

    The strongest direction, mostly that of the vectors' mean, stays as it is: to even it out as well hardly changes
    cosines, and costs a softmax in four bits much, since it reads the words' frequencies there. With a `strength` below
    1, each other direction's moment M becomes M to the power of 1 - strength, times a number. Vectors keep their mean
    square. Numbers that the model clips are clipped in the new basis, which may differ there.
    """
    config, source = pretrained.config, pretrained.source or "the model"
    if not config.lstm.project:
        raise WeightsError(f"{source}: its LSTMs have no projections, which whitening would change")
    softmax = pretrained.softmax
    if softmax is not None and not isinstance(softmax, SoftmaxTensors):
        raise WeightsError(
            f"{source}: has an adaptive softmax, which whitening does not know; leave it out (softmax=False, "
            "--no-softmax)"
        )
    read = [moments[f"lstm.{k}.weight_x"].sum(dim=0) for k in range(1, config.n_layers)]  # each (P, P)
    by = _evening(torch.stack([*read, moments["softmax.weight"]]).sum(dim=0).double(), strength)
    back = torch.linalg.inv(by)

    def change(name: str, values: Tensor) -> Tensor:
        values = values.double()
        if name.startswith("lstm.") and name.endswith("projection"):
            values = by @ values  # (R, P, H)
        elif name.endswith("weight_h") or (name.endswith("weight_x") and not name.startswith("lstm.0.")):
            values = values @ back  # (R, 4H, P)
        return values.float()

    tensors = {name: change(name, values) for name, values in pretrained.tensors.items()}
    if softmax is not None:
        softmax = SoftmaxTensors((softmax.weight.double() @ back).float(), softmax.bias.float())
    return replace(pretrained, tensors=tensors, softmax=softmax, format=None, stored=None)


def _evening(moment: Tensor, strength: float) -> Tensor:
    """The symmetric A (P, P) for which A M A has M's directions, strongest value and trace; the others are evener."""
    strengths, directions = torch.linalg.eigh(moment)
    if not strengths[-1] > 0:
        raise WeightsError("the vectors of this text are all zero, so nothing says how they spread")
    strengths = strengths.clamp_min(LEAST * strengths[-1])
    evener = strengths[:-1].pow(1 - strength)
    evener *= strengths[:-1].sum() / evener.sum()
    found: Tensor = (directions * (torch.cat([evener, strengths[-1:]]) / strengths).sqrt()) @ directions.mT
    return found
