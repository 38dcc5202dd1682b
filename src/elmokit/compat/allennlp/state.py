"""LSTM state carried from call to call, with the switch that AllenNLP's users reached for."""

from collections.abc import Callable

import torch

from elmokit.encoders.elmo.carry import RowStates
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM, State


class CarriedState:
    """What stands at `_elmo_lstm` of AllenNLP's biLM: `stateful` may be set at any time, `reset_states()` forgets."""

    def __init__(self, bilm: BiLM, *, stateful: bool) -> None:
        self.bilm = bilm
        self.stateful = stateful
        self.rows = RowStates()

    def reset_states(self) -> None:
        """Every row starts from zero again."""
        self.rows = RowStates()

    def through(self, rows: int, run: Callable[[State | None], tuple[LayerStack, State]]) -> LayerStack:
        """One batch: each row goes on where it ended in the batch before."""
        if not self.stateful:
            return run(None)[0]
        stack, ended = run(self.rows.first(rows, self.bilm))
        with torch.inference_mode(False):  # state left by inference may be trained on next
            self.rows.update(ended)
        return stack
