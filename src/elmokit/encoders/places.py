"""Devices and number types by name, and how large a batch each device likes."""

from collections.abc import Callable, Sequence

import torch

from elmokit.errors import InputError
from elmokit.kernels.cpu.c import c_library
from elmokit.kernels.cpu.inference import has_bfloat16

FLOATS = ("float32", "bfloat16", "float16", "float64")
INT8 = "int8"  # a mode of the biLM on a CPU: int8 products, everything else float32


def pick_device(device: str | torch.device) -> torch.device:
    """The device of that name; "auto" is CUDA where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device {device!r} not understood; expected auto, cpu, cuda or cuda:N") from error
    if chosen.type == "cuda":
        present = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (chosen.index or 0) >= present:
            raise InputError(
                f"device {str(device)!r} asked for, but torch sees {present} CUDA devices; use cpu or auto"
            )
    return chosen


def pick_dtype(
    dtype: str | torch.dtype,
    device: torch.device,
    *,
    modes: Sequence[str] = FLOATS,
    usual: Callable[[torch.device], torch.dtype] | None = None,
) -> torch.dtype:
    """The number type of that name, of those that a model has; "auto" is the fastest one on this device.

    "default" is the `usual` one there, for models that have such.
    """
    name = str(dtype).removeprefix("torch.")
    if name == "default" and usual is not None:
        return usual(device)
    if name == "auto":
        return _fastest(device, modes)
    if name not in modes:
        known = f"expected auto{'' if usual is None else ', default'} or one of {', '.join(modes)}"
        raise InputError(f"dtype {str(dtype)!r} does not fit here; {known}")
    return getattr(torch, name)  # type: ignore[no-any-return]


def _fastest(device: torch.device, modes: Sequence[str]) -> torch.dtype:
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type != "cpu":
        return torch.float32
    if INT8 in modes:
        return torch.int8 if c_library() is not None else torch.float32
    return torch.bfloat16 if has_bfloat16() else torch.float32


def batch_budget(batch_tokens: int | None, device: torch.device) -> int:
    """Positions per batch: enough rows to keep the device busy, few enough to keep its memory small."""
    if batch_tokens is None:
        return 32_768 if device.type == "cuda" else 4_096
    if batch_tokens < 1:
        raise InputError(f"batch_tokens is {batch_tokens}; at least 1 is needed")
    return batch_tokens


def ahead_bytes(device: torch.device) -> int:
    """Results that may wait at a time until the sentences before them are done."""
    if device.type != "cuda":
        return 256 << 20
    # They cross into page-locked memory, which takes long to get: three times this, at most.
    return int(min(max(torch.cuda.get_device_properties(device).total_memory // 32, 128 << 20), 512 << 20))
