"""`Joined`: encoders side by side, each with a fixed choice of layers, as an encoder like any other."""

from collections.abc import Sequence
from functools import cached_property

import torch

from elmokit.encoders.batches import BatchRunner
from elmokit.encoders.encoder import Context, Encoder, digest_of
from elmokit.encoders.features import Part
from elmokit.encoders.places import FLOATS, INT8
from elmokit.layers import LayerStack
from elmokit.text import Sentence, Tokenizer

NAMES = ("joined",)


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
        self.parts = Part.all_of(parts)
        first = self.parts[0].encoder
        super().__init__(tokenizer or first.tokenizer, device=device or first.device, dtype=dtype or first._wanted)
        self.placed()

    def _usual(self, device: torch.device) -> torch.dtype:
        return self.parts[0].encoder._usual(device)

    def _build(self, device: torch.device, dtype: torch.dtype) -> "JoinedRunner":
        return JoinedRunner(self.parts, device, dtype)

    def arithmetic_in(self, device: torch.device, dtype: torch.dtype) -> str:
        """That of its parts."""
        parts = [part.encoder.arithmetic_in(device, _mode(part.encoder, dtype)) for part in self.parts]
        return " beside ".join(dict.fromkeys(parts))

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
