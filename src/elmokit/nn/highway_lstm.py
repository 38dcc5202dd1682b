"""LSTM layers whose direction alternates, with gated highway connections (He et al. 2017, section 2.1).

    i, f, o, r = sigmoid(W x_t + U h_t-1 + b)      input, forget, output and highway gate
    u          = tanh(W x_t + U h_t-1 + b)
    c_t        = i * u + f * c_t-1
    h_t        = z * (r * o * tanh(c_t) + (1 - r) * V x_t)

t-1 is the word before in one layer and the word behind in the next. z is dropout with one mask for all words of a
sentence. The products with x_t need no step before them and are made for all words at once; the backward pass is
written out for the same reason: the gradients of U are one product over all words instead of one per word.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.errors import ConfigError

GATES = 5  # i, f, o, r, u: those that read the state; the sixth block is the carried V x


@dataclass(frozen=True, slots=True)
class HighwayLstmConfig:
    """Layers 0, 2, 4 ... read forward, the others backward."""

    width: int  # of the input
    hidden: int = 300
    n_layers: int = 8
    dropout: float = 0.1  # on the state, and so on the output, of each layer
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        if min(self.width, self.hidden, self.n_layers) < 1:
            raise ConfigError(f"width {self.width}, hidden {self.hidden}, n_layers {self.n_layers}: expected 1 or more")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout {self.dropout}: expected from 0 to below 1")


class HighwayLstm(nn.Module):
    """(B, T, D) to (B, T, H): one word's vector after all layers have read the sentence back and forth."""

    def __init__(self, config: HighwayLstmConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.width] + [config.hidden] * (config.n_layers - 1)
        self.layers = nn.ModuleList(
            HighwayLstmLayer(width, config, reverse=bool(k % 2)) for k, width in enumerate(widths)
        )

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """`mask` (B, T) is True at the real positions, which come first; behind them the output is 0."""
        steps = values.transpose(0, 1)  # (T, B, D)
        real = mask.T[..., None].to(values.dtype)  # (T, B, 1)
        for layer in self.layers:
            steps = layer(steps, real)  # (T, B, H)
        return steps.transpose(0, 1)


class HighwayLstmLayer(nn.Module):
    """One layer in one direction, time first."""

    def __init__(self, width: int, config: HighwayLstmConfig, *, reverse: bool) -> None:
        super().__init__()
        self.reverse, self.dropout = reverse, config.dropout
        H = config.hidden
        self.weight_x = nn.Parameter(torch.empty((GATES + 1) * H, width))  # (6 H, D)
        self.weight_h = nn.Parameter(torch.empty(GATES * H, H))  # (5 H, H)
        self.bias = nn.Parameter(torch.zeros(GATES * H))  # (5 H,)
        for weights in (self.weight_x, self.weight_h):
            for block in weights.data.chunk(len(weights) // H):
                nn.init.orthogonal_(block)
        self.bias.data[H : 2 * H] = config.forget_bias

    def forward(self, steps: Tensor, real: Tensor) -> Tensor:
        """(T, B, D) and the mask as numbers (T, B, 1) to (T, B, H)."""
        H = self.weight_h.shape[1]
        bias = nn.functional.pad(self.bias, (0, H))  # (6 H,): what is carried has none
        inputs = nn.functional.linear(steps, self.weight_x, bias)  # (T, B, 6 H)
        keep = real.expand(-1, -1, H)  # (T, B, H)
        if self.training and self.dropout:
            kept = torch.ones(1, steps.shape[1], H, dtype=inputs.dtype, device=inputs.device)
            keep = keep * nn.functional.dropout(kept, self.dropout)
        outputs: Tensor = _Recurrence.apply(inputs, self.weight_h, real, keep, self.reverse)  # type: ignore[no-untyped-call]
        return outputs


class _Recurrence(torch.autograd.Function):
    """The steps of one layer. A masked step leaves the state at 0, so a backward layer starts at the last word."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, real: Tensor, keep: Tensor, reverse: bool) -> Tensor:
        T, B, H = keep.shape
        cells, outputs = inputs.new_zeros(T, B, H), inputs.new_zeros(T, B, H)
        gates = inputs.new_empty(T, B, GATES * H)  # after their sigmoid and tanh
        h, c = inputs.new_zeros(B, H), inputs.new_zeros(B, H)
        for t in _order(T, reverse):
            torch.addmm(inputs[t, :, : GATES * H], h, weight.T, out=gates[t])
            gates[t, :, : 4 * H].sigmoid_()
            gates[t, :, 4 * H :].tanh_()
            i, f, o, r, u = gates[t].chunk(GATES, dim=1)  # (B, H) each
            c = torch.addcmul(i * u, f, c).mul_(real[t])
            carried = inputs[t, :, GATES * H :]  # (B, H)
            h = torch.lerp(carried, o * c.tanh(), r).mul_(keep[t])
            cells[t], outputs[t] = c, h
        ctx.save_for_backward(inputs, weight, real, keep, gates, cells, outputs)
        ctx.reverse = reverse
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, real, keep, gates, cells, outputs = ctx.saved_tensors
        T, B, H = keep.shape
        order = _order(T, ctx.reverse)
        nothing = inputs.new_zeros(B, H)
        d_inputs = torch.empty_like(inputs)  # (T, B, 6 H): the gradients before the sigmoids and tanhs
        dh_next, dc_next = nothing, nothing
        for n in range(T - 1, -1, -1):
            t = order[n]
            before = cells[order[n - 1]] if n else nothing
            i, f, o, r, u = gates[t].chunk(GATES, dim=1)
            di, df, do, dr, du, d_carried = d_inputs[t].chunk(GATES + 1, dim=1)
            tanh_c = cells[t].tanh()
            dh = (grads[0][t] + dh_next) * keep[t]
            through = dh * r  # what reached o * tanh(c)
            torch.sub(dh, through, out=d_carried)
            torch.mul(dh * (o * tanh_c - inputs[t, :, GATES * H :]), r * (1 - r), out=dr)
            torch.mul(through * tanh_c, o * (1 - o), out=do)
            dc = torch.addcmul(dc_next, through * o, 1 - tanh_c * tanh_c).mul_(real[t])
            torch.mul(dc * u, i * (1 - i), out=di)
            torch.mul(dc * before, f * (1 - f), out=df)
            torch.mul(dc * i, 1 - u * u, out=du)
            dc_next = dc * f
            dh_next = d_inputs[t, :, : GATES * H] @ weight
        earlier = _shifted(outputs, ctx.reverse)  # (T, B, H): h_t-1
        d_weight = d_inputs[..., : GATES * H].flatten(0, 1).T @ earlier.flatten(0, 1)  # (5 H, H)
        return d_inputs, d_weight, None, None, None


def _order(n_steps: int, reverse: bool) -> Sequence[int]:
    return range(n_steps - 1, -1, -1) if reverse else range(n_steps)


def _shifted(outputs: Tensor, reverse: bool) -> Tensor:
    """The state that each step began with. (T, B, H)"""
    blank = torch.zeros_like(outputs[:1])
    return torch.cat([outputs[1:], blank] if reverse else [blank, outputs[:-1]])
