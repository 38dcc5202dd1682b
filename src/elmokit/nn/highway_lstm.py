"""LSTM layers whose direction alternates, with gated highway connections (He et al. 2017, section 2.1).

    i, f, o, r = sigmoid(W x_t + U h_t-1 + b)      input, forget, output and highway gate
    u          = tanh(W x_t + U h_t-1 + b)
    c_t        = i * u + f * c_t-1
    h_t        = z * (r * o * tanh(c_t) + (1 - r) * V x_t)

t-1 is the word before in one layer and the word after in the next. z is dropout with one mask for all words of a
sentence. The products with x_t need no step before them and are made for all words at once; the backward pass is
written out for the same reason: the gradients of U are one product over all words instead of one per word.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from elmokit.errors import ConfigError

GATES = 5  # u, i, f, o, r: those that read the state; the sixth block is the carried V x


@dataclass(frozen=True, slots=True)
class HighwayLstmConfig:
    """Layers 0, 2, 4 ... read forward, the others backward."""

    width: int  # of the input
    hidden: int = 300
    n_layers: int = 8
    dropout: float = 0.1  # on the state, and so on the output, of each layer
    forget_bias: float = 1.0
    # Below 0 a layer begins by carrying more than half of its input on: through eight layers that carry half, next to
    # nothing of the words reaches the top, and learning takes longer to begin (Srivastava et al. 2015, section 2.2).
    highway_bias: float = -1.0

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
        """`mask` (B, T) is True at the real positions, which come first; after them the output is 0."""
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
        self.bias.data[2 * H : 3 * H] = config.forget_bias
        self.bias.data[4 * H :] = config.highway_bias

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
    """The steps of one layer. A masked step leaves the state at 0, so a backward layer starts at the last word.

    All that needs no step before it is computed for all words at once: a step costs one product of matrices and few
    sweeps over its numbers, there and back.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, real: Tensor, keep: Tensor, reverse: bool) -> Tensor:
        T, B, H = keep.shape
        cells, outputs = torch.empty_like(keep), torch.empty_like(keep)  # (T, B, H) each
        gates = inputs.new_empty(T, B, GATES * H)  # after their sigmoid and tanh
        before, squashed = inputs[..., : GATES * H].unbind(), gates.unbind()
        tanh, sigmoids = gates[..., :H].unbind(), gates[..., H:].unbind()
        u, i, f, o, r = (block.unbind() for block in gates.chunk(GATES, dim=-1))
        carried = inputs[..., GATES * H :].unbind()
        h = c = inputs.new_zeros(B, H)
        for t in _order(T, reverse):
            torch.addmm(before[t], h, weight.T, out=squashed[t])
            tanh[t].tanh_()
            sigmoids[t].sigmoid_()
            c = torch.addcmul(u[t] * i[t], f[t], c, out=cells[t]).mul_(real[t])
            h = torch.lerp(carried[t], o[t] * c.tanh(), r[t], out=outputs[t]).mul_(keep[t])
        ctx.save_for_backward(inputs, weight, real, keep, gates, cells, outputs)
        ctx.reverse = reverse
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, real, keep, gates, cells, outputs = ctx.saved_tensors
        T, B, H = keep.shape
        u, i, f, o, r = gates.chunk(GATES, dim=-1)  # (T, B, H) each
        slopes = gates[..., H:] * (1 - gates[..., H:])  # (T, B, 4 H), of the sigmoids
        di, df, do, dr = slopes.chunk(4, dim=-1)
        tanh_c = cells.tanh()
        # What each gate's input gets of the gradient of the cell (u, i, f) and of the output (o, r, carried).
        of_cell = torch.stack([i * (1 - u * u), u * di, _shifted(cells, ctx.reverse) * df], dim=2)  # (T, B, 3, H)
        of_cell *= real[..., None]
        of_output = torch.stack([r * tanh_c * do, (o * tanh_c - inputs[..., GATES * H :]) * dr, 1 - r], dim=2)
        to_cell = (r * o * (1 - tanh_c * tanh_c)).unbind()
        d_inputs = torch.empty_like(inputs)  # (T, B, 6 H)
        blocks = d_inputs.view(T, B, GATES + 1, H)
        d_cell, d_output = blocks[:, :, :3].unbind(), blocks[:, :, 3:].unbind()
        d_before, forget = d_inputs[..., : GATES * H].unbind(), f.unbind()
        wanted, kept, cell_parts, output_parts = grads[0].unbind(), keep.unbind(), of_cell.unbind(), of_output.unbind()
        dh_next = dc_next = inputs.new_zeros(B, H)
        for t in reversed(_order(T, ctx.reverse)):
            dh = (wanted[t] + dh_next).mul_(kept[t])
            dc = torch.addcmul(dc_next, dh, to_cell[t])
            torch.mul(dh[:, None], output_parts[t], out=d_output[t])
            torch.mul(dc[:, None], cell_parts[t], out=d_cell[t])
            dc_next = dc.mul_(forget[t])
            dh_next = d_before[t] @ weight
        earlier = _shifted(outputs, ctx.reverse)  # (T, B, H): h_t-1
        d_weight = d_inputs[..., : GATES * H].flatten(0, 1).T @ earlier.flatten(0, 1)  # (5 H, H)
        return d_inputs, d_weight, None, None, None


def _order(n_steps: int, reverse: bool) -> range:
    return range(n_steps - 1, -1, -1) if reverse else range(n_steps)


def _shifted(states: Tensor, reverse: bool) -> Tensor:
    """The state that each step began with. (T, B, H)"""
    blank = torch.zeros_like(states[:1])
    return torch.cat([states[1:], blank] if reverse else [blank, states[:-1]])
