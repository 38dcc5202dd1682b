"""Several encoders side by side: each with its own choice of layers, concatenated word by word.

The paper's task models read GloVe beside ELMo (Peters et al. 2018, section 3.3). `Features` is that as a layer of a
network, its mixes trained with the task; `Joined` is the same with fixed choices, as an encoder like any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from elmokit.encoders.batches import BatchRunner
from elmokit.encoders.encoder import Context, Encoder, Layers, digest_of
from elmokit.encoders.given import read_tokens
from elmokit.encoders.module import MixedLayers
from elmokit.encoders.places import FLOATS, INT8
from elmokit.errors import InputError
from elmokit.layers import LayerChoice, LayerStack
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence, Tokenizer

__all__ = ["Features", "Joined", "Part"]

NAMES = ("joined",)


@dataclass(frozen=True, slots=True)
class Part:
    """One encoder, and what is taken of its layers.

    `layers` in the grammar of `elmokit.layers`: "mix" and "mix:LAYERS" are trained by `Features`; all else is fixed.
    `mix` says how a trained one is made (dropout, layer norm, l2); its number of layers is filled in.
    """

    encoder: Encoder
    layers: Layers = "mix"
    mix: MixConfig = MixConfig()

    @property
    def choice(self) -> LayerChoice:
        return LayerChoice.parse(self.layers)

    @property
    def width(self) -> int:
        return self.choice.width(self.encoder.depth, self.encoder.width)

    def new_mix(self) -> ScalarMix | None:
        """The mix to train; None where there is nothing to train: a fixed choice, or a single layer."""
        layers = self.choice.indices(self.encoder.depth)
        if self.choice.kind != "mix" or len(layers) == 1:
            return None
        return ScalarMix(replace(self.mix, n_layers=len(layers)))

    def pick(self, stack: LayerStack) -> LayerStack:
        """The layers that the mix weighs."""
        layers = self.choice.indices(len(stack.values))
        return replace(stack, values=stack.values[layers], names=tuple(stack.names[k] for k in layers))


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
        self.parts = _parts(parts)
        mixes = {str(k): mix for k, part in enumerate(self.parts) if (mix := part.new_mix()) is not None}
        self.mixes = nn.ModuleDict(mixes)  # by the number of the part
        self.register_buffer("anchor", torch.zeros(()), persistent=False)  # knows where the module is

    @property
    def width(self) -> int:
        """D, the size of a joined vector."""
        return sum(part.width for part in self.parts)

    def penalty(self) -> Tensor:
        """The L2 terms of all mixes, to be added to the loss."""
        terms = [mix.penalty() for mix in self.mixes.values() if isinstance(mix, ScalarMix)]
        return torch.stack(terms).sum() if terms else self.anchor

    def layers(self, sentences: Sequence[Sequence[str] | Sentence]) -> list[LayerStack]:
        """The runs before the mixes, one per part: keep them to mix them more than once."""
        given = read_tokens(sentences)
        return [part.encoder.run(given) for part in self.parts]

    def forward(self, sentences: Sequence[Sequence[str] | Sentence] | Sequence[LayerStack]) -> MixedLayers:
        """Token lists, or what `layers` made of them."""
        made = [s for s in sentences if isinstance(s, LayerStack)]
        stacks = made if made else self.layers(sentences)  # type: ignore[arg-type]
        if len(stacks) != len(self.parts):
            raise InputError(f"{len(stacks)} stacks of layers given for {len(self.parts)} encoders; give one for each")
        vectors = [self._part(k, stack) for k, stack in enumerate(stacks)]
        return MixedLayers((torch.cat(vectors, dim=-1),), stacks[0].inner().mask.to(self.anchor.device))

    def _part(self, k: int, stack: LayerStack) -> Tensor:
        """One part's vectors. (B, T, D)"""
        values = stack.values.to(self.anchor.device, self.anchor.dtype)
        stack = replace(stack, values=values, mask=stack.mask.to(self.anchor.device))
        if str(k) in self.mixes:
            mixed: Tensor = self.mixes[str(k)](self.parts[k].pick(stack))
            return mixed
        return self.parts[k].choice.apply(stack.inner().values)


class Joined(Encoder):
    """Encoders side by side as one of one layer, for the embed calls, probes and comparison.

    Text is cut into words by the tokenizer of the first part unless another is given. A "mix" that is not trained is
    the average. A part that has no such mode as `dtype` names runs in float32.
    """

    modes = (*FLOATS, INT8)

    def __init__(
        self,
        parts: Sequence[Part | Encoder],
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.parts = _parts(parts)
        first = self.parts[0].encoder
        super().__init__(tokenizer or first.tokenizer, device=device or first.device, dtype=dtype or first.dtype)
        self.placed()

    def _build(self, device: torch.device, dtype: torch.dtype) -> "JoinedRunner":
        return JoinedRunner(self.parts, device, dtype)

    @property
    def width(self) -> int:
        """D, the sum of the parts' widths."""
        return sum(part.width for part in self.parts)

    @property
    def layer_names(self) -> tuple[str, ...]:
        return NAMES

    @property
    def context(self) -> Context:
        """What the parts see together."""
        seen = {part.encoder.context for part in self.parts} - {"none"}
        return "none" if not seen else seen.pop() if len(seen) == 1 else "both"

    @property
    def source(self) -> str:
        return " beside ".join(f"{part.encoder.source} ({part.layers})" for part in self.parts)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the parts' own."""
        return digest_of([(part.encoder.fingerprint, part.choice) for part in self.parts], {})

    @property
    def longest_word(self) -> int | None:
        return min((n for part in self.parts if (n := part.encoder.longest_word) is not None), default=None)

    def overlong(self, word: str) -> bool:
        """Whether some part reads only the beginning of this word."""
        return any(part.encoder.overlong(word) for part in self.parts)

    def unknown(self, word: str) -> bool:
        """Whether no part knows this word."""
        return all(part.encoder.unknown(word) for part in self.parts)

    def forget_words(self) -> None:
        for part in self.parts:
            part.encoder.forget_words()


class JoinedRunner(BatchRunner):
    """Runs the parts one after another over the same batch."""

    def __init__(self, parts: Sequence[Part], device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(device, dtype if dtype.is_floating_point else torch.float32)
        self.runs = [(part.choice, part.encoder.placed(device, _mode(part.encoder, dtype))) for part in parts]

    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        stacks = [(choice, runner.stack(sentences).inner()) for choice, runner in self.runs]
        joined = torch.cat([choice.apply(stack.values) for choice, stack in stacks], dim=-1)  # (B, T, D)
        return LayerStack(joined[None], stacks[0][1].mask, NAMES)


def _mode(encoder: Encoder, dtype: torch.dtype) -> torch.dtype:
    return dtype if str(dtype).removeprefix("torch.") in encoder.modes else torch.float32


def _parts(given: Sequence[Part | Encoder]) -> list[Part]:
    parts = [part if isinstance(part, Part) else Part(part) for part in given]
    if not parts:
        raise InputError("no encoders were given to join; expected at least one")
    for part in parts:
        if part.choice.kind == "all":
            raise InputError("layers 'all' keep the layers apart and cannot be joined; use 'mix', 'concat:...' or one")
        part.choice.indices(part.encoder.depth)  # layers that are not there are told now
    return parts
