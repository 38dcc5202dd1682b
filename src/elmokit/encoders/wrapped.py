"""`Wrapped`: an encoder over another one; what it does not change is the other's."""

import torch

from elmokit.encoders.encoder import Context, Encoder
from elmokit.encoders.places import FLOATS, INT8


class Wrapped(Encoder):
    """Text is cut, and words are known, as by `encoder`."""

    modes = (*FLOATS, INT8)

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.tokenizer, device=encoder.device, dtype=encoder._wanted)
        self.encoder = encoder

    def _usual(self, device: torch.device) -> torch.dtype:
        return self.encoder._usual(device)

    def inner_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The mode that `encoder` runs in: float32 where it has no such mode."""
        return dtype if str(dtype).removeprefix("torch.") in self.encoder.modes else torch.float32

    def arithmetic_in(self, device: torch.device, dtype: torch.dtype) -> str:
        return self.encoder.arithmetic_in(device, self.inner_dtype(dtype))

    @property
    def width(self) -> int:
        return self.encoder.width

    @property
    def layer_names(self) -> tuple[str, ...]:
        return self.encoder.layer_names

    @property
    def context(self) -> Context:
        return self.encoder.context

    @property
    def longest_word(self) -> int | None:
        return self.encoder.longest_word

    def overlong(self, word: str) -> bool:
        return self.encoder.overlong(word)

    @property
    def has_unknown(self) -> bool:
        return self.encoder.has_unknown

    def unknown(self, word: str) -> bool:
        return self.encoder.unknown(word)

    def forget_words(self) -> None:
        self.encoder.forget_words()
