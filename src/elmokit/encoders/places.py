"""Devices and number types by name, and how large a batch each device likes."""

import torch

from elmokit.errors import InputError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


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


def pick_dtype(dtype: str | torch.dtype) -> torch.dtype:
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if str(dtype) not in DTYPES:
        raise InputError(f"dtype {str(dtype)!r} not understood; expected one of {', '.join(DTYPES)}")
    return DTYPES[str(dtype)]


def batch_budget(batch_tokens: int | None, device: torch.device) -> int:
    """Positions per batch: enough rows to keep the device busy, few enough to keep its memory small."""
    if batch_tokens is None:
        return 32_768 if device.type == "cuda" else 4_096
    if batch_tokens < 1:
        raise InputError(f"batch_tokens is {batch_tokens}; at least 1 is needed")
    return batch_tokens
