"""A task network's numbers in a file: floats, or packed into fewer bytes; counters as they are."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.formats.tensors import open_tensors, write_tensors
from elmokit.native.numbers import GROUP
from elmokit.weights.storage import Dtype, StoredTensors, pack, stored


def write_weights(path: Path, state: Mapping[str, Tensor], *, dtype: Dtype | None) -> None:
    counters = {name: values for name, values in state.items() if _is_counter(values)}
    numbers = {name: values for name, values in state.items() if name not in counters}
    if dtype == "int4":
        numbers = {name: _filled(values) for name, values in numbers.items()}
    packed = counters | pack(numbers, dtype, stacked=())
    write_tensors(path, {name: stored(values) for name, values in packed.items()})


def read_weights(path: Path, outline: Mapping[str, Tensor], *, described: str, advice: str) -> dict[str, Tensor]:
    """All of a network whose shapes and types are `outline`, as float32; `described` is the file that says so."""
    open_tensors(path, error=WeightsError, advice=advice)
    held = safetensors.torch.load_file(path)
    counters = {name: values for name, values in held.items() if _is_counter(values) and _is_counter(outline.get(name))}
    numbers = StoredTensors({name: values for name, values in held.items() if name not in counters}, str(path))
    found = {name: numbers.shape(name) for name in numbers} | {n: tuple(values.shape) for n, values in counters.items()}
    for name, values in outline.items():
        four = name in numbers and numbers.held[name].dtype == torch.uint8
        if found.get(name) != tuple((_filled(values) if four else values).shape):
            told = f"has shape {found[name]}" if name in found else "is missing"
            raise WeightsError(f"{path}: {name!r} {told}, but {described} describes {tuple(values.shape)}; {advice}")
    if more := sorted(found.keys() - outline.keys()):
        raise WeightsError(f"{path}: {more[0]!r} is no part of the network that {described} describes; {advice}")
    read = {name: _cut(numbers[name], outline[name]).float() for name in numbers}
    if bad := [name for name, values in read.items() if not torch.isfinite(values).all()]:
        raise WeightsError(f"{path}: {bad[0]!r} has numbers that are NaN or infinite; {advice}")
    return read | counters


def stored_type(path: Path) -> Dtype | None:
    """The type that a file's numbers were written in; None: as the network computes."""
    kinds = {values.dtype for values in safetensors.torch.load_file(path).values()}
    names: dict[torch.dtype, Dtype] = {
        torch.uint8: "int4", torch.int8: "int8", torch.float16: "float16", torch.bfloat16: "bfloat16",
    }  # fmt: skip
    return next((name for kind, name in names.items() if kind in kinds), None)


def _filled(values: Tensor) -> Tensor:
    """A matrix with columns of zeros up to whole groups of four-bit numbers; anything else as it is."""
    if values.ndim < 2 or values.shape[-1] < GROUP:
        return values
    return torch.nn.functional.pad(values, (0, -values.shape[-1] % GROUP))


def _cut(values: Tensor, like: Tensor) -> Tensor:
    return values if values.shape == like.shape else values[..., : like.shape[-1]].contiguous()


def _is_counter(values: Tensor | None) -> bool:
    """Whole numbers that a layer keeps, as batch norm's count of batches."""
    return values is not None and values.dtype == torch.int64
