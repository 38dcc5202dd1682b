"""State carried from batch to batch, by row: how AllenNLP and bilm-tf ran, needed to reproduce what they stored.

With it, a sentence's vectors depend on every batch its row has seen, so it is never the default.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.encoders.elmo.runner import Runner
from elmokit.encoders.results import per_sentence
from elmokit.formats.given import sentences_of
from elmokit.kernels import LstmState
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.bilm import BiLM, State
from elmokit.text import Sentence, Tokenizer


class RowStates:
    """The LSTM state of every row seen so far. TypeRows beyond a batch keep theirs; new rows start from zero."""

    def __init__(self) -> None:
        self.state: State | None = None

    @property
    def rows(self) -> int:
        return 0 if self.state is None else self.state[0].h.shape[1]

    def first(self, rows: int, bilm: BiLM, *, like: Tensor | None = None) -> State:
        """The state in which the first `rows` rows stand; new rows get numbers of the type and place of `like`."""
        fresh = bilm.zero_state(max(rows - self.rows, 0), like=next(bilm.parameters()) if like is None else like)
        known = self.state or tuple(LstmState(h[:, :0], c[:, :0]) for h, c in fresh)
        joined = [
            (torch.cat([old.h.to(new.h), new.h], dim=1), torch.cat([old.c.to(new.c), new.c], dim=1))
            for old, new in zip(known, fresh, strict=True)
        ]
        self.state = tuple(LstmState(h, c) for h, c in joined)
        return tuple(LstmState(h[:, :rows], c[:, :rows]) for h, c in self.state)

    def update(self, ended: State) -> None:
        """Keep the state in which a batch's rows ended; no gradient flows from one batch into the one before it."""
        assert self.state is not None
        rows = ended[0].h.shape[1]
        self.state = tuple(
            LstmState(torch.cat([new.h.detach(), old.h[:, rows:]], 1), torch.cat([new.c.detach(), old.c[:, rows:]], 1))
            for new, old in zip(ended, self.state, strict=True)
        )


class CarriedElmo:
    """A session over batches given one after another; row k of a batch goes on where row k of the batch before ended.

    Made by `Elmo.carry()`. Batches are run exactly as given: never sorted, split or joined. An empty sentence still
    runs its two boundaries.
    """

    def __init__(self, runner: Runner, tokenizer: Tokenizer) -> None:
        self.runner, self.tokenizer = runner, tokenizer
        self.states = RowStates()

    def reset(self) -> None:
        """Back to zero state in every row."""
        self.states = RowStates()

    def run(self, batch: Sequence[Sentence]) -> LayerStack:
        """One batch, boundaries still in it."""
        with torch.no_grad():
            stack, ended = self.runner.layers(batch, state=self.states.first(len(batch), self.runner.bilm))
            self.states.update(ended)
        return stack

    def encode_layers(self, batch: Any, *, layers: str | int | LayerChoice = "all") -> list[NDArray[np.floating[Any]]]:
        """One batch: a list of strings, of token lists or of Sentences. One (L, T, D) array for each."""
        sentences = list(sentences_of(batch, tokenizer=self.tokenizer))
        if not sentences:
            return []
        stack = self.run(sentences).inner()
        values = LayerChoice.parse(layers).apply(stack.values)
        return per_sentence(values if values.ndim == 4 else values[None], stack.mask)
