"""How numbers are stored: as floats, or as int8 with one scale per output row (tensors `NAME` and `NAME.scale`)."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from elmokit.errors import WeightsError

Dtype = Literal["float32", "float16", "bfloat16", "int8"]
FLOAT_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SCALE = ".scale"
STEPS = 127  # the largest int8 used; -128 is left out so that a row is symmetric


def cast(values: Tensor, dtype: Dtype | None, name: str) -> Tensor:
    """On the CPU, dense, in that float type (None: its own). A number too large for float16 is refused."""
    values = values.detach().cpu()
    if dtype is not None:
        if dtype not in FLOAT_TYPES:
            raise WeightsError(f"dtype {dtype!r} does not fit here; expected one of {', '.join(FLOAT_TYPES)}")
        largest = float(values.abs().max()) if values.numel() else 0.0
        if largest > torch.finfo(FLOAT_TYPES[dtype]).max:
            raise WeightsError(
                f"'{name}' has a value of {largest:g}, too large for {dtype}; choose float32 or bfloat16"
            )
        values = values.to(FLOAT_TYPES[dtype])
    return values.contiguous()


def pack(tensors: Mapping[str, Tensor], dtype: Dtype | None) -> dict[str, Tensor]:
    """Tensors as they go into a file. int8: matrices become int8 with their scales, biases float16."""
    if dtype != "int8":
        return {name: cast(values, dtype, name) for name, values in tensors.items()}
    packed: dict[str, Tensor] = {}
    for name, values in tensors.items():
        axes = 2 if name.startswith("lstm.") else 1  # before the output rows, an LSTM's parameters have the directions
        if values.ndim <= axes:
            packed[name] = cast(values, "float16", name)
        else:
            packed[name], packed[name + SCALE] = quantise(cast(values, "float32", name), axes=axes)
    return packed


def unpack(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """The inverse: int8 tensors become float32, all others stay as they are."""
    unpacked: dict[str, Tensor] = {}
    for name, values in tensors.items():
        scale = tensors.get(name + SCALE)
        if name.endswith(SCALE) and name.removesuffix(SCALE) in tensors:
            continue
        if scale is not None:
            if values.dtype != torch.int8 or scale.shape != values.shape[: scale.ndim]:
                found = f"{values.dtype} of shape {tuple(values.shape)} with scales of shape {tuple(scale.shape)}"
                raise WeightsError(f"{source}: '{name}' is {found}, expected int8 and one scale per row")
            values = dequantise(values, scale)
        elif not values.is_floating_point():
            raise WeightsError(
                f"{source}: '{name}' has type {values.dtype}, expected floats, or int8 with '{name}{SCALE}'"
            )
        unpacked[name] = values
    return unpacked


def quantise(values: Tensor, *, axes: int = 1) -> tuple[Tensor, Tensor]:
    """int8 and float32 scales, one for each index of the first `axes` axes; off by at most half a scale."""
    largest = values.abs().flatten(axes).amax(dim=-1)  # (rows)
    scale = torch.where(largest > 0, largest / STEPS, 1.0)
    return (values / _spread(scale, values)).round().clamp(-STEPS, STEPS).to(torch.int8), scale


def dequantise(values: Tensor, scale: Tensor) -> Tensor:
    return values.to(torch.float32) * _spread(scale.to(torch.float32), values)


def _spread(scale: Tensor, values: Tensor) -> Tensor:
    return scale.reshape(*scale.shape, *(1 for _ in range(values.ndim - scale.ndim)))
