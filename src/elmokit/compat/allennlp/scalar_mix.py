"""AllenNLP's `ScalarMix`: over a list of tensors, with that library's parameter names."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.errors import ConfigurationError
from elmokit.nn.mix import LAYER_NORM_EPSILON


class ScalarMix(nn.Module):
    """gamma * sum_k softmax(w)_k * tensor_k, the w and gamma trained unless `trainable` is False."""

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        start = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(start) != mixture_size:
            raise ConfigurationError(
                f"Length of initial_scalar_parameters {start} differs from mixture_size {mixture_size}"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(w)]), requires_grad=trainable) for w in start
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Tensors of one shape, (B, T, D) for layer norm, which needs the mask (B, T); else the mask is unused."""
        if len(tensors) != self.mixture_size:
            raise ConfigurationError(
                f"{len(tensors)} tensors were passed, but the module was initialized to mix {self.mixture_size} "
                f"tensors."
            )
        shares = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)  # (L,)
        values = torch.stack(list(tensors))  # (L, ...)
        if self.do_layer_norm:
            if mask is None:
                raise ConfigurationError("a ScalarMix with do_layer_norm needs the mask of real positions; got None")
            values = _normalise(values, mask)
        return self.gamma * torch.einsum("l,l...->...", shares.to(values.dtype), values)


def _normalise(values: Tensor, mask: Tensor) -> Tensor:
    """Each layer by its mean and variance over all unmasked numbers. Padding is scaled along, as it was there."""
    real = mask[None, ..., None].to(values.dtype)  # (1, B, T, 1)
    count = real.sum() * values.shape[-1]
    mean = (values * real).sum(dim=(1, 2, 3), keepdim=True) / count  # (L, 1, 1, 1)
    variance = ((values - mean) * real).square().sum(dim=(1, 2, 3), keepdim=True) / count
    return (values - mean) / (variance + LAYER_NORM_EPSILON).sqrt()
