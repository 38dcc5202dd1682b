"""Layers mixed inside a network: each encoder's layers as one vector per word, trained with what reads them.

LayerMix, LayerPick   the layers of one encoder to one vector per word: a mix to train, or a fixed choice
Features              several frozen encoders side by side, each with its own mix (Peters et al. 2018, section 3.3)
ElmoEmbedding         one biLM inside the network, frozen or trained, with one mix or more

    elmo = ElmoEmbedding.from_pretrained("model", mixes=(MixConfig(dropout=0.5),))
    out = elmo([["A", "sentence", "."], ["Two", "words"]])
    out.vectors, out.mask      # (2, 3, D) float, (2, 3) bool
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from elmokit.batch import TokenBatch, build_batch
from elmokit.encoders.elmo.carry import RowStates
from elmokit.encoders.encoder import Encoder, Layers
from elmokit.errors import InputError
from elmokit.formats.given import read_tokens
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence
from elmokit.weights import Pretrained, load_pretrained

Tokenised = Sequence[Sequence[str] | Sentence]


@dataclass(frozen=True, slots=True)
class MixedLayers:
    """One tensor per mix, all over the same run, and which positions are words."""

    outputs: tuple[Tensor, ...]  # each (B, T, D), zero where masked
    mask: Tensor  # (B, T) bool

    @property
    def vectors(self) -> Tensor:
        """The first mix's output, the only one of most networks. (B, T, D)"""
        return self.outputs[0]


class LayerMix(ScalarMix):
    """A trained mix of some layers of an encoder, then dropout."""

    def __init__(self, picked: Sequence[int], *, width: int, mix: MixConfig) -> None:
        super().__init__(replace(mix, n_layers=len(picked)))
        self.picked, self.width = list(picked), width

    def forward(self, stack: LayerStack) -> Tensor:
        """All layers of a batch, to (B, T, D)."""
        if self.picked != list(range(len(stack.values))):
            stack = replace(stack, values=stack.values[self.picked], names=tuple(stack.names[k] for k in self.picked))
        return super().forward(stack)


class LayerPick(nn.Module):
    """A fixed choice of layers, then dropout: the same where there is nothing to train."""

    def __init__(self, choice: LayerChoice, *, width: int, dropout: float) -> None:
        super().__init__()
        self.choice, self.width, self.dropout = choice, width, dropout

    def forward(self, stack: LayerStack) -> Tensor:
        return nn.functional.dropout(self.choice.apply(stack.inner().values), self.dropout, self.training)


def mix_layers(layers: Layers, *, depth: int, width: int, mix: MixConfig | None = None) -> LayerMix | LayerPick:
    """The module that makes one vector of an encoder's layers, of which there are `depth`, each of size `width`.

    `layers` in the grammar of `elmokit.layers`: "mix" and "mix:LAYERS" are trained, unless there is but one layer; all
    else is fixed. `mix` says how (dropout, layer norm, l2); its number of layers is filled in.
    """
    choice, mix = LayerChoice.parse(layers), mix or MixConfig()
    if choice.kind == "all":
        raise InputError("layers 'all' keep the layers apart and cannot be joined; use 'mix', 'concat:...' or one")
    picked, out = choice.indices(depth), choice.width(depth, width)
    if choice.kind == "mix" and len(picked) > 1:
        return LayerMix(picked, width=out, mix=mix)
    return LayerPick(choice, width=out, dropout=mix.dropout)


def mix_penalty(modules: Iterable[nn.Module], *, like: Tensor) -> Tensor:
    """The L2 terms of the mixes among the modules, to be added to a loss; zero on the device of `like` without any."""
    terms = [module.penalty() for module in modules if isinstance(module, ScalarMix)]
    return torch.stack(terms).sum() if terms else like.new_zeros(())


@dataclass(frozen=True, slots=True)
class Part:
    """One encoder, and what is taken of its layers; see `mix_layers`."""

    encoder: Encoder
    layers: Layers = "mix"
    mix: MixConfig = MixConfig()

    @property
    def choice(self) -> LayerChoice:
        return LayerChoice.parse(self.layers)

    def module(self) -> LayerMix | LayerPick:
        """What makes one vector of its layers, untrained."""
        return mix_layers(self.layers, depth=self.encoder.depth, width=self.encoder.width, mix=self.mix)

    @property
    def width(self) -> int:
        return self.choice.width(self.encoder.depth, self.encoder.width)

    @classmethod
    def all_of(cls, given: Sequence["Part | Encoder"]) -> list["Part"]:
        """Parts that can be joined."""
        parts = [part if isinstance(part, Part) else Part(part) for part in given]
        if not parts:
            raise InputError("no encoders were given to join; expected at least one")
        for part in parts:
            part.module()  # layers that are not there are named now
        return parts


class Features(nn.Module):
    """Sentences to joined vectors (B, T, D), D the sum of the parts' widths; differentiable in the mixes.

        features = Features([Part(glove), Part(elmo, mix=MixConfig(dropout=0.5))])
        out = features([["A", "sentence", "."], ["Two", "words"]])
        out.vectors, out.mask      # (2, 3, 100 + 512), (2, 3)

    The encoders are frozen and stay where they were made; their layers come to where the module is. The state dict
    holds the mixes alone. To train on layers made before, give those instead of sentences, one stack per part.
    """

    anchor: Tensor

    def __init__(self, parts: Sequence[Part | Encoder]) -> None:
        super().__init__()
        self.parts = Part.all_of(parts)
        made = {str(k): part.module() for k, part in enumerate(self.parts)}  # by the number of the part
        self.mixes = nn.ModuleDict({k: module for k, module in made.items() if isinstance(module, LayerMix)})
        self.fixed = nn.ModuleDict({k: module for k, module in made.items() if isinstance(module, LayerPick)})
        self.register_buffer("anchor", torch.zeros(()), persistent=False)  # knows where the module is

    @property
    def width(self) -> int:
        """D, the size of a joined vector."""
        return sum(part.width for part in self.parts)

    def penalty(self) -> Tensor:
        """The L2 terms of all mixes, to be added to the loss."""
        return mix_penalty(self.mixes.values(), like=self.anchor)

    def layers(self, sentences: Tokenised) -> list[LayerStack]:
        """The runs before the mixes, one per part: keep them to mix them more than once."""
        given = read_tokens(sentences)
        return [part.encoder.run(given) for part in self.parts]

    def forward(self, sentences: Tokenised | Sequence[LayerStack]) -> MixedLayers:
        """Token lists, or what `layers` made of them."""
        made = [s for s in sentences if isinstance(s, LayerStack)]
        stacks = made if made else self.layers(sentences)  # type: ignore[arg-type]
        if len(stacks) != len(self.parts):
            raise InputError(f"{len(stacks)} stacks of layers given for {len(self.parts)} encoders; give one for each")
        vectors = [self._part(str(k), stack) for k, stack in enumerate(stacks)]
        return MixedLayers((torch.cat(vectors, dim=-1),), stacks[0].inner().mask.to(self.anchor.device))

    def _part(self, k: str, stack: LayerStack) -> Tensor:
        """One part's vectors. (B, T, D)"""
        module = self.mixes[k] if k in self.mixes else self.fixed[k]
        values = stack.values.to(self.anchor.device, self.anchor.dtype)
        mixed: Tensor = module(replace(stack, values=values, mask=stack.mask.to(self.anchor.device)))
        return mixed


class ElmoEmbedding(nn.Module):
    """Sentences to mixed vectors, differentiable in the mixes and, with `fine_tune`, in the biLM.

    Frozen by default: the biLM has no gradients and stays in evaluation mode even when the network around it trains.
    `fine_tune`, or `requires_grad_(True)` later on, trains it, too. Each of `mixes` gives one output; two of them put
    ELMo at the input and at the output of a task network. `state="carried"` keeps LSTM state from call to call by row,
    as AllenNLP did; `reset()` forgets it. The state dict holds everything, the biLM too, so a checkpoint stands on its
    own.
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
        depth, width = pretrained.config.depth, pretrained.config.width
        configs = (MixConfig(n_layers=depth),) if mixes is None else tuple(mixes)
        for config in configs:
            if config.n_layers != depth:
                raise InputError(f"a mix of {config.n_layers} layers was given, but the model has {depth}")
        self.bilm = copy.deepcopy(pretrained.build())  # its own weights: training must not change the ones it came from
        self.bilm.dropout = dropout
        self.bilm.requires_grad_(fine_tune)
        self.mixes = nn.ModuleList(LayerMix(range(depth), width=width, mix=config) for config in configs)
        self.codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
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

    @property
    def fine_tune(self) -> bool:
        """Whether the biLM is trained: whether any of its weights has gradients."""
        return any(weight.requires_grad for weight in self.bilm.parameters())

    def requires_grad_(self, requires_grad: bool = True) -> "ElmoEmbedding":
        """Train everything, the biLM too, or nothing."""
        super().requires_grad_(requires_grad)
        return self.train(self.training)

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
        return mix_penalty(self.mixes, like=next(self.bilm.parameters()))

    def forward(self, sentences: Tokenised | TokenBatch | LayerStack) -> MixedLayers:
        """Token lists, a batch made before by `build_batch`, or the layers of a run made before."""
        stack = sentences if isinstance(sentences, LayerStack) else self.layers(sentences)
        return MixedLayers(tuple(mix(stack) for mix in self.mixes), stack.inner().mask)

    def layers(self, sentences: Tokenised | TokenBatch) -> LayerStack:
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
