"""`Aligned`: a model whose vectors are mapped into another model's space, as an encoder like any other."""

from collections.abc import Sequence
from functools import cached_property

import torch

from elmokit.encoders.alignment import Alignment
from elmokit.encoders.batches import BatchRunner
from elmokit.encoders.encoder import Encoder, digest_of
from elmokit.encoders.wrapped import Wrapped
from elmokit.errors import InputError
from elmokit.layers import LayerStack
from elmokit.text import Sentence


class Aligned(Wrapped):
    """An encoder and an `Alignment`; `Encoder.aligned` makes it. Text is cut as the encoder cuts it."""

    def __init__(self, encoder: Encoder, alignment: Alignment) -> None:
        if encoder.fingerprint != alignment.about.source:
            raise InputError(
                f"the alignment maps from {alignment.about.source_name}, but the model is {encoder.source}, which "
                "has other weights; make an alignment of its own for it"
            )
        super().__init__(encoder)
        self.alignment = alignment
        self.placed()

    def _build(self, device: torch.device, dtype: torch.dtype) -> "AlignedRunner":
        return AlignedRunner(self.encoder.placed(device, self.inner_dtype(dtype)), self.alignment, device)

    @property
    def width(self) -> int:
        """D, that of the target."""
        return self.alignment.width

    @property
    def source(self) -> str:
        return f"{self.encoder.source} aligned to {self.alignment.about.target_name}"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the model and the maps."""
        tensors = {name: torch.from_numpy(getattr(self.alignment, name)) for name in ("maps", "means", "target_means")}
        return digest_of((self.encoder.fingerprint, self.alignment.scales.tolist()), tensors)


class AlignedRunner(BatchRunner):
    """Runs the model, then maps each layer."""

    def __init__(self, runner: BatchRunner, alignment: Alignment, device: torch.device) -> None:
        super().__init__(device, runner.dtype)
        self.runner = runner
        self.maps, self.means, self.target_means, self.scales = (
            torch.from_numpy(getattr(alignment, name)).to(device)
            for name in ("maps", "means", "target_means", "scales")
        )

    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        stack = self.runner.stack(sentences).inner()
        values = stack.values.float() - self.means[:, None, None]  # (L, B, T, D)
        mapped = torch.einsum("lbtd,lde->lbte", values, self.maps)  # (L, B, T, E)
        mapped = mapped * self.scales[:, None, None, None] + self.target_means[:, None, None]
        mapped = (mapped * stack.mask[None, :, :, None]).to(stack.values.dtype)  # zero where masked
        return LayerStack(mapped, stack.mask, stack.names)
