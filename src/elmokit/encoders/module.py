"""`ElmoEmbedding`: ELMo inside someone's own network (Peters et al. 2018, section 3.3).

elmo = ElmoEmbedding.from_pretrained("model", mixes=(MixConfig(dropout=0.5),))
out = elmo([["A", "sentence", "."], ["Two", "words"]])
out.vectors, out.mask      # (2, 3, D) float, (2, 3) bool
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.batch import TokenBatch, build_batch
from elmokit.encoders.elmo.carry import RowStates
from elmokit.encoders.given import read_tokens
from elmokit.errors import InputError
from elmokit.layers import LayerStack
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence
from elmokit.weights import Pretrained, load_pretrained


@dataclass(frozen=True, slots=True)
class MixedLayers:
    """One tensor per mix, all over the same run, and which positions are words."""

    outputs: tuple[Tensor, ...]  # each (B, T, D), zero where masked
    mask: Tensor  # (B, T) bool

    @property
    def vectors(self) -> Tensor:
        """The first mix's output, the only one of most networks. (B, T, D)"""
        return self.outputs[0]


class ElmoEmbedding(nn.Module):
    """Sentences to mixed vectors, differentiable in the mixes and, with `fine_tune`, in the biLM.

    Frozen by default: the biLM has no gradients and stays in evaluation mode even when the network around it trains.
    Each of `mixes` gives one output; two of them put ELMo at the input and at the output of a task network.
    `state="carried"` keeps LSTM state from call to call by row, as AllenNLP did; `reset()` forgets it. The state dict
    holds everything, the biLM too, so a checkpoint stands on its own.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        mixes: Sequence[MixConfig] | None = None,
        fine_tune: bool = False,
        dropout: float = 0.0,
        state: Literal["fresh", "carried"] = "fresh",
    ) -> None:
        super().__init__()
        if state not in ("fresh", "carried"):
            raise InputError(f"state {state!r} not known; expected 'fresh' (every sentence alone) or 'carried'")
        depth = pretrained.config.depth
        configs = (MixConfig(n_layers=depth),) if mixes is None else tuple(mixes)
        for config in configs:
            if config.n_layers != depth:
                raise InputError(f"a mix of {config.n_layers} layers was asked for, but the model has {depth}")
        self.bilm = copy.deepcopy(pretrained.build())  # its own weights: training must not change the ones it came from
        self.bilm.dropout = dropout
        self.bilm.requires_grad_(fine_tune)
        self.mixes = nn.ModuleList(ScalarMix(config) for config in configs)
        self.codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
        self.fine_tune = fine_tune
        self.states = RowStates() if state == "carried" else None
        self.train()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path | None = None,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
        mixes: Sequence[MixConfig] | None = None,
        fine_tune: bool = False,
        dropout: float = 0.0,
        state: Literal["fresh", "carried"] = "fresh",
    ) -> "ElmoEmbedding":
        """From whatever `Elmo.from_pretrained` takes."""
        pretrained = load_pretrained(source, revision=revision, local_files_only=local_files_only)
        return cls(pretrained, mixes=mixes, fine_tune=fine_tune, dropout=dropout, state=state)

    @property
    def width(self) -> int:
        """D, the size of each output's vectors."""
        return self.bilm.config.width

    def train(self, mode: bool = True) -> "ElmoEmbedding":
        super().train(mode)
        if not self.fine_tune:
            self.bilm.eval()
        return self

    def reset(self) -> None:
        """Forget carried state."""
        if self.states is not None:
            self.states = RowStates()

    def penalty(self) -> Tensor:
        """The L2 terms of all mixes, to be added to the loss."""
        return torch.stack([mix.penalty() for mix in self._mixes()]).sum()

    def forward(self, sentences: Sequence[Sequence[str] | Sentence] | TokenBatch | LayerStack) -> MixedLayers:
        """Token lists, a batch made before by `build_batch`, or the layers of a run made before."""
        stack = sentences if isinstance(sentences, LayerStack) else self.layers(sentences)
        return MixedLayers(tuple(mix(stack) for mix in self._mixes()), stack.inner().mask)

    def layers(self, sentences: Sequence[Sequence[str] | Sentence] | TokenBatch) -> LayerStack:
        """The run before the mixes, boundaries still in it: keep it to mix it more than once."""
        batch = sentences if isinstance(sentences, TokenBatch) else build_batch(read_tokens(sentences), self.codec)
        device = next(self.bilm.parameters()).device
        types, index = torch.from_numpy(batch.types).to(device), torch.from_numpy(batch.index).to(device)
        with torch.set_grad_enabled(self.fine_tune and torch.is_grad_enabled()):
            start = None if self.states is None else self.states.first(len(batch.lengths), self.bilm)
            stack: LayerStack
            stack, ended = self.bilm(types, index, batch.lengths, state=start)
            if self.states is not None:
                self.states.update(ended)
        return stack

    def _mixes(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes if isinstance(mix, ScalarMix)]
