"""Where the layers of a task's sentences come from: a table made once, the encoder as it runs, or one that is trained.

Tables hold float16. An encoder that runs for predictions is rounded the same way, so that a saved model sees at work
what its network saw in training; a fine-tuned one was never in a table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.encoders import Elmo, ElmoEmbedding, Encoder
from elmokit.errors import InputError
from elmokit.layers import LayerStack
from elmokit.tasks.table import LayerTable, Told, embed_layers
from elmokit.text import Sentence

ON_DEVICE = 0.4  # share of a GPU's free memory that a table may take


class LayerSource(Protocol):
    """Sentences to their layers, without boundaries, in float32, with one position at least."""

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:  # (L, B, T, D)
        ...


class CachedLayers:
    """The layers of all sentences that were given when it was made, each distinct one once."""

    def __init__(self, table: LayerTable, places: dict[tuple[str, ...], int]) -> None:
        self.table, self.places = table, places
        self._moved: Tensor | None = None  # (N, L, D), the table on the device

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        sentences: Iterable[Sentence],
        *,
        folder: Path | None = None,
        batch_tokens: int | None = None,
        told: Told | None = None,
    ) -> "CachedLayers":
        """Computed, or found again in `folder`; without one, kept in memory."""
        distinct = {sentence.tokens: sentence for sentence in sentences}
        table = embed_layers(encoder, list(distinct.values()), folder=folder, batch_tokens=batch_tokens, told=told)
        return cls(table, {tokens: k for k, tokens in enumerate(distinct)})

    @property
    def nbytes(self) -> int:
        """Bytes that the table takes."""
        return self.table.values.nbytes

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        try:
            picked = [self.places[sentence.tokens] for sentence in sentences]
        except KeyError as error:
            words = " ".join(error.args[0])[:60]
            raise InputError(f"no layers were computed for {words!r}; make them of all sentences first") from None
        if device.type == "cuda" and self._fits(device):
            return self._gathered(picked, device)
        return self.table.stack(picked, device=device)

    def _fits(self, device: torch.device) -> bool:
        """Whether the whole table is on the device, or can be: batches are then gathered there."""
        if self._moved is None and self.nbytes < ON_DEVICE * torch.cuda.mem_get_info(device)[0]:
            self._moved = torch.from_numpy(np.array(self.table.values)).to(device)
        return self._moved is not None

    def _gathered(self, picked: list[int], device: torch.device) -> LayerStack:
        assert self._moved is not None
        starts = torch.from_numpy(self.table.starts[picked]).to(device)  # (B,)
        lengths = torch.from_numpy(self.table.starts[np.array(picked) + 1]).to(device) - starts  # (B,)
        steps = torch.arange(max(int(lengths.max()), 1), device=device)  # (T,)
        mask = steps < lengths[:, None]  # (B, T)
        rows = (starts[:, None] + steps).masked_fill(~mask, 0)  # (B, T)
        values = self._moved[rows].float() * mask[..., None, None]  # (B, T, L, D)
        return LayerStack(values.permute(2, 0, 1, 3), mask, self.table.names)


class LiveLayers:
    """The encoder as it runs; `rounded` to what a table would hold."""

    def __init__(self, encoder: Encoder, *, rounded: bool = True) -> None:
        self.encoder, self.rounded = encoder, rounded

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        stack = at_least_one(self.encoder.run(list(sentences)).inner())
        values = stack.values.to(device)
        return replace(stack, values=(values.half() if self.rounded else values).float(), mask=stack.mask.to(device))


class TunedLayers(nn.Module):
    """A biLM that is trained with the task: its layers have gradients."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, Elmo):
            raise InputError(f"{encoder.source}: only an ELMo can be fine-tuned with a task; leave fine_tune out")
        self.origin = encoder
        self.embedding = ElmoEmbedding(encoder.pretrained, mixes=(), fine_tune=True)

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        return at_least_one(self.embedding.layers(sentences).inner())

    def as_encoder(self) -> Elmo:
        """An encoder with the biLM as it is now; the softmax belonged to what it was."""
        before = self.origin.pretrained
        tensors = {name: values.detach().cpu() for name, values in self.embedding.bilm.state_dict().items()}
        now = replace(
            before, tensors=tensors, softmax=None, source=f"{before.source}, fine-tuned", format=None, stored=None
        )
        # Whichever tokenizer it ran with so far, it goes on with.
        cut = self.origin.tokenizer
        return Elmo(now, device=self.origin.device, tokenizer=cut, allow_other_tokenizer=True)


def at_least_one(stack: LayerStack) -> LayerStack:
    """The stack with a position of padding where it has no position at all."""
    if stack.values.shape[2]:
        return stack
    L, B, _, D = stack.values.shape
    return replace(stack, values=stack.values.new_zeros(L, B, 1, D), mask=stack.mask.new_zeros(B, 1))
