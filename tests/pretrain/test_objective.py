"""The loss of a window and its gradients against the equations, one token at a time, in float64."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.nn.bilm import BiLMConfig
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig, LstmLayer
from elmokit.nn.softmax import SoftmaxConfig
from elmokit.pretrain.objective import Inputs, Objective

V, P, H, B, T, U = 11, 4, 6, 3, 5, 7


def objective(*, skip: bool = True, dropout: float = 0.0, layers: int = 2) -> Objective:
    config = BiLMConfig(
        TokenEncoderConfig(
            char_dim=3, max_characters=8, filters=((1, 3), (3, 5)), n_highway=1, projection_dim=P, project=True
        ),
        LstmConfig(cell_dim=H, projection_dim=P, cell_clip=0.25, proj_clip=0.15),  # tight: both clips act here
        n_layers=layers,
        skip_connections=skip,
    )
    made = Objective(config, SoftmaxConfig("full"), V, dropout=dropout, dtype=torch.float64).double()
    made.initialise(4)
    with torch.no_grad():
        for parameter in made.parameters():  # biases, too, so that nothing is zero by chance
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(6)))
    return made.train()


def inputs() -> Inputs:
    source = torch.Generator().manual_seed(2)
    types = torch.randint(1, 262, (U, 8), generator=source, dtype=torch.int32)
    which, targets = (torch.randint(0, n, (2, T * B), generator=source) for n in (U, V))
    keep = (torch.rand(T * B, generator=source) > 0.3).float()
    assert 0 < keep.sum() < len(keep)
    return Inputs(types, which, targets, keep, torch.rand(1))


def started(model: Objective) -> list[tuple[Tensor, Tensor]]:
    """A state that was carried here: h and c of each layer."""
    source = torch.Generator().manual_seed(8)
    return [
        (0.2 * torch.randn(2, B, P, generator=source, dtype=torch.float64),
         0.3 * torch.randn(2, B, H, generator=source, dtype=torch.float64))
        for _ in model.bilm.lstm
    ]  # fmt: skip


def step(layer: LstmLayer, r: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """One step of one row and direction (SEMANTICS: gates i, j, f, o; forget + 1; both clips)."""
    assert layer.projection is not None
    i, j, f, o = (layer.weight_x[r] @ x + layer.weight_h[r] @ h + layer.bias[r]).chunk(4)
    c = torch.clamp(torch.sigmoid(f + 1.0) * c + torch.sigmoid(i) * torch.tanh(j), -0.25, 0.25)
    h = torch.clamp(layer.projection[r] @ (torch.sigmoid(o) * torch.tanh(c)), -0.15, 0.15)
    return h, c


def naive_layer(
    layer: LstmLayer, x: Tensor, keep: Tensor, state: tuple[Tensor, Tensor]
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Packed input (R, T * B, P), token by token."""
    out: list[list[Tensor]] = [[torch.empty(0)] * (T * B) for _ in range(2)]
    ended: list[list[tuple[Tensor, Tensor]]] = [[], []]
    for r in range(2):
        for b in range(B):
            h, c = state[0][r, b], state[1][r, b]
            for t in range(T):
                at = t * B + b
                if keep[at] == 0:
                    h, c = torch.zeros_like(h), torch.zeros_like(c)
                h, c = step(layer, r, x[r, at], h, c)
                out[r][at] = h
            ended[r].append((h, c))
    values = torch.stack([torch.stack(side) for side in out])
    return values, tuple(torch.stack([torch.stack([pair[k] for pair in side]) for side in ended]) for k in (0, 1))  # type: ignore[return-value]


def naive(
    model: Objective, given: Inputs, state: list[tuple[Tensor, Tensor]], *, dropout: float = 0.0
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """The loss. Dropout falls on each layer's input and on the top output; the residual adds the dropped input."""
    vectors = model.bilm.tokens(given.types)
    x = torch.stack([torch.stack([vectors[k] for k in side]) for side in given.which.tolist()])  # (R, N, P)
    ended = []
    for k, layer in enumerate(model.bilm.lstm):
        assert isinstance(layer, LstmLayer)
        x = F.dropout(x, dropout)
        y, last = naive_layer(layer, x, given.keep, state[k])
        x = y + x if k > 0 and model.bilm.config.skip_connections else y
        ended.append(last)
    x = F.dropout(x, dropout)
    weight, bias = model.softmax.weight, model.softmax.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    losses = [F.cross_entropy(weight @ x[r, n] + bias, given.targets[r, n]) for r in range(2) for n in range(T * B)]
    return torch.stack(losses).mean(), ended  # the mean of both directions' means: they are of equal size


def compare(model: Objective, *, dropout: float = 0.0) -> None:
    given, state = inputs(), started(model)
    torch.manual_seed(31)
    loss, ended = model(given, tuple(type(s)(h, c) for (h, c), s in zip(state, model.zero_state(B), strict=True)))
    torch.manual_seed(31)
    want, want_ended = naive(model, given, state, dropout=dropout)
    torch.testing.assert_close(loss, want)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found, wanted = (torch.autograd.grad(value, parameters, allow_unused=True) for value in (loss, want))
    for name, a, b in zip(names, found, wanted, strict=True):
        assert a is not None, name
        assert b is not None, name
        assert float(b.abs().max()) > 0, name
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")  # type: ignore[misc]
    for got, (h, c) in zip(ended, want_ended, strict=True):
        torch.testing.assert_close(got.h, h.detach())
        torch.testing.assert_close(got.c, c.detach())
        assert not got.h.requires_grad  # truncated backpropagation: no gradient goes on into the next window


@pytest.mark.parametrize("skip", [True, False])
def test_loss_gradients_and_state_equal_the_equations(skip: bool) -> None:
    compare(objective(skip=skip))


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_falls_where_it_did_as_published(layers: int) -> None:
    model = objective(dropout=0.4, layers=layers)
    compare(model, dropout=0.4)
    given, state = inputs(), model.zero_state(B)
    model.eval()
    assert torch.equal(model(given, state)[0], model(given, state)[0])  # none at evaluation
    model.train()
    assert not torch.equal(model(given, state)[0], model(given, state)[0])


def test_fewer_words_than_negatives_are_all_scored() -> None:
    config = objective().bilm.config
    made = Objective(config, SoftmaxConfig("sampled", samples=V), V)
    assert made.sampler is None
    assert Objective(config, SoftmaxConfig("sampled", samples=V - 1), V).sampler is not None
