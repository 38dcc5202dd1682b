"""The LSTM state that AllenNLP's biLM carries from batch to batch, row by row."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.names import LSTM, Parts
from elmokit.encoders.elmo.carry import RowStates
from elmokit.kernels import LstmState
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, State


class CarriedState(nn.Module):
    """The state of each row, carried from call to call.

    `stateful` may be set at any time; `reset_states()` forgets. `_states` is AllenNLP's form of it: (outputs (L, B, D),
    cells (L, B, R * H)), both directions side by side, or None.
    """

    def __init__(self, *, stateful: bool) -> None:
        super().__init__()
        self.stateful = stateful
        self.rows = RowStates()
        self._turn = threading.Lock()

    @property
    def _states(self) -> tuple[Tensor, Tensor] | None:
        state = self.rows.state
        if state is None:
            return None
        outputs, cells = ([torch.cat(list(layer[part]), dim=-1) for layer in state] for part in (0, 1))
        return torch.stack(outputs), torch.stack(cells)

    @_states.setter
    def _states(self, value: tuple[Tensor, Tensor] | None) -> None:
        rows = RowStates()
        if value is not None:
            outputs, cells = value
            sides = self.directions
            rows.state = tuple(
                LstmState(torch.stack(h.detach().chunk(sides, dim=-1)), torch.stack(c.detach().chunk(sides, dim=-1)))
                for h, c in zip(outputs, cells, strict=True)
            )
        self.rows = rows

    directions = 2

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Every row starts from zero again, or those that the mask (B,) names."""
        known = self._states
        if mask is None or known is None:
            self.rows = RowStates()
            return
        if len(mask) != known[0].shape[1]:
            raise ValueError(f"a mask of {len(mask)} rows, but {known[0].shape[1]} rows have a state")
        keep = ~mask.bool().to(known[0].device)[None, :, None]
        self._states = known[0] * keep, known[1] * keep

    def through(
        self, bilm: BiLM, like: Tensor, rows: int, run: Callable[[State | None], tuple[LayerStack, State]]
    ) -> LayerStack:
        """One batch: each row starts in the state in which it ended the batch before."""
        if not self.stateful:
            return run(None)[0]
        with self._turn:
            stack, ended = run(self.rows.first(rows, bilm, like=like.detach()))
            with torch.inference_mode(False):  # state left by inference may be trained on next
                self.rows.update(ended)
        return stack

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"_turn": threading.Lock()})  # type: ignore[no-untyped-call]


class ElmoLstm(CarriedState):
    """The weights of the LSTM layers under AllenNLP's names (`forward_layer_0` ...), and the state."""

    def __init__(self, parts: Parts, *, stateful: bool) -> None:
        super().__init__(stateful=stateful)
        parts.fill(self, LSTM)
        lstm = parts.config.lstm
        self.num_layers, self.hidden_size, self.cell_size = parts.config.n_layers, lstm.projection_dim, lstm.cell_dim
        self.directions = len(parts.config.directions)
