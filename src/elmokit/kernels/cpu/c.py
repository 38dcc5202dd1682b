"""The recurrence and the token encoder of `elmokit.native` as torch modules: single calls into C for int8 and floats.

`c_library()` is None if C cannot run here; callers then use torch's libraries.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.kernels.char_cnn import Filter
from elmokit.kernels.cpu.copies import take_rows
from elmokit.kernels.cpu.int8 import Int8Matrix, Matrix, as_floats
from elmokit.kernels.reference import LstmState
from elmokit.native.library import CLibrary, Compiled, c_library, compiled
from elmokit.native.lstm import CLstm, Direction
from elmokit.native.numbers import ArrayMatrix, Int8Array
from elmokit.native.tokens import ArrayFilter, ArrayLinear, CompiledLinear, CTokens
from elmokit.shape import LstmRules

__all__ = ["CLibrary", "Compiled", "CompiledLstm", "CompiledTokens", "Linear", "as_arrays", "c_library", "compiled"]


class Linear(NamedTuple):
    """A matrix and its bias."""

    matrix: Matrix
    bias: Tensor


class CompiledLstm(nn.Module):
    """One layer; called like an `LstmLayer`. Holds no parameters: its matrices are laid out for this machine."""

    def __init__(
        self,
        library: CLibrary,
        w_x: Iterable[Matrix],
        w_h: Iterable[Matrix],
        bias: Tensor,
        projection: Iterable[Matrix] | None,
        rules: LstmRules,
    ) -> None:
        super().__init__()
        outs = None if projection is None else map(as_arrays, projection)
        self.layer = CLstm(library, map(as_arrays, w_x), map(as_arrays, w_h), as_floats(bias), outs, rules)

    @property
    def directions(self) -> list[Direction]:
        return self.layer.directions

    @torch.no_grad()
    def forward(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        given = [x, *state] if keep is None else [x, *state, keep]
        if any(part.device.type != "cpu" for part in given):
            raise ValueError(f"x, h, c and keep are on {[str(part.device) for part in given]}; expected all on a CPU")
        kept = None if keep is None else as_floats(keep)
        out, h, c = self.layer(as_floats(x), as_floats(state.h), as_floats(state.c), steps, keep=kept)
        return torch.from_numpy(out), LstmState(torch.from_numpy(h), torch.from_numpy(c))


class CompiledTokens(nn.Module):
    """Word types (U, W) to vectors (U, P), in place of a `TokenEncoder`; `words` is set where each has its own."""

    def __init__(
        self,
        library: CLibrary,
        characters: Tensor | None,
        filters: Sequence[Filter],
        highways: Sequence[tuple[Linear, Linear]],
        projection: Linear | None,
        *,
        pad: int | None,
        activation: Literal["relu", "tanh"] = "relu",
        word_dim: int = 0,
    ) -> None:
        super().__init__()
        self.words: nn.Embedding | None = None
        self.encoder = CTokens(
            library,
            None if characters is None else as_floats(characters),
            [ArrayFilter(*map(as_floats, bank)) for bank in filters],
            [(_linear(transform), _linear(gate)) for transform, gate in highways],
            None if projection is None else _linear(projection),
            pad=pad,
            activation=activation,
            word_dim=word_dim,
        )

    @property
    def highways(self) -> list[list[CompiledLinear]]:
        return self.encoder.highways

    @property
    def projection(self) -> CompiledLinear | None:
        return self.encoder.projection

    @torch.no_grad()
    def forward(self, types: Tensor) -> Tensor:
        if types.device.type != "cpu":
            raise ValueError(f"words on {types.device}; expected them on a CPU")
        own = None if self.words is None else take_rows(self.words.weight.detach(), types[:, 0].long()).numpy()
        characters = types.numpy() if self.words is None else types.numpy()[:, 1:]
        return torch.from_numpy(self.encoder(characters, own))


def as_arrays(matrix: Matrix) -> ArrayMatrix:
    """The same memory; bfloat16 as its bits."""
    if isinstance(matrix, Int8Matrix):
        return Int8Array(matrix.values.numpy(), as_floats(matrix.scale))
    if matrix.dtype == torch.bfloat16:
        bits = matrix.detach().view(torch.int16).numpy()
        return bits.view(np.uint16)
    return as_floats(matrix)


def _linear(linear: Linear) -> ArrayLinear:
    return ArrayLinear(as_arrays(linear.matrix), as_floats(linear.bias))
