"""Copies and sums of rows between calls into C, on a CPU by the calling thread alone.

Torch would wake its threads for each of them and leave them spinning beside the C that runs next. On other devices, and
where gradients are needed, torch does it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLAIN = (torch.float32, torch.float64)  # NumPy has them too


def take_rows(source: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Rows (N, ...) of a tensor by number. (M, ...)"""
    if not _plain(source):
        return torch.index_select(source, 0, index, out=out)
    made = source.new_empty(len(index), *source.shape[1:]) if out is None else out
    if len(index):
        # The numbers are checked first: told to "raise", NumPy would make another copy, to have nothing half written.
        source.numpy().take(_checked(index, len(source)), axis=0, out=made.numpy(), mode="clip")
    return made


def put_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Rows (M, ...) to their places in a table (N, ...)."""
    if _plain(table) and _plain(rows) and rows.dtype == table.dtype:
        table.numpy()[_checked(index, len(table))] = rows.numpy()
    else:
        table.index_copy_(0, index, rows)


def sum_of(x: Tensor, y: Tensor) -> Tensor:
    if _plain(x) and _plain(y) and x.dtype == y.dtype:
        return torch.from_numpy(np.add(x.numpy(), y.numpy()))
    return x + y


def zeros_of(shape: tuple[int, ...], *, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros where another tensor is, in its type or this one."""
    dtype = dtype or like.dtype
    if _here(like) and dtype in PLAIN:
        return torch.from_numpy(np.zeros(shape, np.float32 if dtype == torch.float32 else np.float64))
    return like.new_zeros(shape, dtype=dtype)


def copy_of(x: Tensor) -> Tensor:
    """In one piece of memory of its own."""
    return torch.from_numpy(x.numpy().copy()) if _plain(x) else x.clone(memory_format=torch.contiguous_format)


def as_array(x: Tensor) -> NDArray[Any] | None:
    """The same memory, where this module's functions would work on it; None where torch's should."""
    return x.numpy() if _plain(x) else None


def _plain(x: Tensor) -> bool:
    """Numbers that NumPy can work on, without gradients."""
    return _here(x) and x.dtype in PLAIN and not x.requires_grad


def _here(x: Tensor) -> bool:
    """A real tensor on a CPU, not one that is being traced."""
    recorded = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return type(x) is Tensor and x.device.type == "cpu" and not recorded


def _checked(index: Tensor, size: int) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = index.numpy()
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
        raise IndexError(f"rows go from 0 to {size - 1}; got {numbers.min()} to {numbers.max()}")
    return numbers
