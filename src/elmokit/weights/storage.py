"""How numbers are stored: as floats, as int8 with one scale per output row, or as four bits with scales for groups.

int8 and four bits are tensors `NAME` and `NAME.scale`; four bits are bytes (uint8) of two numbers each: see below.

Four bits: groups of 64 numbers along the input, each group with a scale of 16 bits. A number is a whole one from -7 to
7 times its group's scale. Two stand in a byte, each with 8 added: the first of a pair in the low four bits. Of several
scales, from the group's largest number down to 0.7 of it, the one with the least squared error is taken. Where the
second moments of the matrix's inputs are known (`weights.calibrate`), the numbers of a row are rounded one after the
other, and those that follow make up for the error so far. Numbers that were four bits before stay as they are.
"""

import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from elmokit.errors import FormatError, WeightsError
from elmokit.formats.tensors import NAMES, Stored
from elmokit.kernels.cpu.int8 import Int8Matrix, as_floats, dequantise, quantise
from elmokit.native import numbers
from elmokit.native.numbers import GROUP, OFFSET
from elmokit.weights.described import SCALE as SCALE
from elmokit.weights.described import check_stored

Dtype = Literal["float32", "float16", "bfloat16", "int8", "int4"]
FLOAT_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STEPS = 7
LARGEST = STEPS * torch.finfo(torch.float16).max  # that a scale of 16 bits leads to
CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
ROUNDED = tuple(STEPS / most for most in range(STEPS - 1, 0, -1))  # of numbers that are multiples of a scale already
CLOSE = 1e-6  # a squared error, as a share of the numbers' squares, that comes of rounding a scale to 16 bits alone
DAMPING = 0.01  # of the mean second moment, added to each: rare inputs do not decide
PIECE = 1024  # rows at a time: nothing as large as the whole matrix is made


def stored(values: Tensor) -> Stored:
    """A tensor as `write_tensors` takes it."""
    values = values.detach().cpu().contiguous()
    data = values.reshape(-1).view(torch.uint8).numpy().data
    return Stored(NAMES[str(values.dtype).removeprefix("torch.")], tuple(values.shape), [data])


def digest_tensors(digest: Any, tensors: Mapping[str, Tensor], *, typed: bool = False) -> None:
    """Adds tensors to a hash of hashlib's, by name; `typed`: their types and shapes too."""
    for name in sorted(tensors):
        values = tensors[name]
        digest.update((f"{name} {values.dtype} {tuple(values.shape)}\n" if typed else name).encode())
        for piece in stored(values).pieces:
            digest.update(piece)


def read_state(path: Path, device: torch.device | str, parts: Mapping[str, type]) -> dict[str, Any]:
    """A training's state that torch.save wrote, checked; damage raises whatever torch or zipfile raise for it.

    `parts` names what must be in it, by type. torch.save writes checksums, but torch.load does not look at them.
    """
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise FormatError(f"the checksum of {damaged} is wrong")
    content: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    for name, kind in parts.items():
        if not isinstance(content, dict) or not isinstance(content.get(name), kind):
            raise FormatError(f"its part {name!r} is missing")
    return content


def cast(values: Tensor, dtype: Dtype | None, name: str) -> Tensor:
    """On the CPU, dense, in that float type (None: its own). A number too large for float16 is refused."""
    values = values.detach().cpu()
    if dtype is not None:
        if dtype not in FLOAT_TYPES:
            raise WeightsError(f"dtype {dtype!r} does not fit here; expected one of {', '.join(FLOAT_TYPES)}")
        values = _within(values, torch.finfo(FLOAT_TYPES[dtype]).max, dtype, name).to(FLOAT_TYPES[dtype])
    return values.contiguous()


def _within(values: Tensor, limit: float, dtype: Dtype, name: str) -> Tensor:
    largest = float(values.abs().max()) if values.numel() else 0.0
    if not math.isfinite(largest):
        raise WeightsError(f"'{name}' has a value of {largest}, which cannot be stored anew; leave dtype out")
    if largest > limit:
        raise WeightsError(f"'{name}' has a value of {largest:g}, too large for {dtype}; choose float32 or bfloat16")
    return values


def pack(
    tensors: Mapping[str, Tensor],
    dtype: Dtype | None,
    *,
    stacked: tuple[str, ...] = ("lstm.",),
    moments: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Tensors as they go into a file. int8: matrices become int8 with their scales, biases float16.

    int4: the same, but matrices whose input falls into whole groups become four bits. Names that begin as one of
    `stacked` have the directions as their first axis. `moments` are those of the inputs, by name.
    """
    if dtype not in ("int8", "int4"):
        return {name: cast(values, dtype, name) for name, values in tensors.items()}
    packed: dict[str, Tensor] = {}
    for name, values in tensors.items():
        axes = 2 if name.startswith(stacked) else 1  # up to and with the output rows
        if values.ndim <= axes:
            packed[name] = cast(values, "float16", name)
        elif dtype == "int4" and fits(values):
            floats = _within(cast(values, "float32", name), LARGEST, dtype, name)
            packed[name], packed[name + SCALE] = quantise_groups(floats, (moments or {}).get(name))
        else:
            packed[name], packed[name + SCALE] = quantise(cast(values, "float32", name), axes=axes)
    return packed


class StoredTensors(Mapping[str, Tensor]):
    """Tensors as a file holds them. Those stored as int8 or four bits become float32 each time they are read by name.

    So a model that runs in int8 takes them as they are (`stored`) and never needs the memory of the floats.
    """

    def __init__(self, held: Mapping[str, Tensor], source: str) -> None:
        self.held, self.source = held, source
        self.names = [n for n in held if not (n.endswith(SCALE) and n.removesuffix(SCALE) in held)]
        check_stored({n: (str(v.dtype).removeprefix("torch."), tuple(v.shape)) for n, v in held.items()}, source)

    def __getitem__(self, name: str) -> Tensor:
        values, scale = self.held[name], self.held.get(name + SCALE)
        if scale is None:
            return values
        return widen_groups(values, scale) if values.dtype == torch.uint8 else dequantise(values, scale)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the numbers, without reading them."""
        shape = tuple(self.held[name].shape)
        return (*shape[:-1], 2 * shape[-1]) if self.held[name].dtype == torch.uint8 else shape

    def stored(self, name: str) -> Int8Matrix | Tensor:
        """As the file has it; four bits as int8, int8 with other scales than one per row as floats."""
        values, scale = self.held[name], self.held.get(name + SCALE)
        if scale is not None and values.dtype == torch.uint8:
            return as_int8(values, scale)
        return (
            self[name]
            if scale is None or scale.ndim != values.ndim - 1
            else Int8Matrix(values, torch.from_numpy(as_floats(scale)))
        )

    def part(self, prefix: str, *, inside: bool) -> "StoredTensors":
        """Those whose names begin so, or all others."""
        kept = {name: values for name, values in self.held.items() if name.startswith(prefix) == inside}
        return StoredTensors(kept, self.source)


def fits(values: Tensor) -> bool:
    """Whether a tensor's last axis falls into whole groups."""
    return values.ndim > 1 and values.shape[-1] % GROUP == 0


def quantise_groups(values: Tensor, moments: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Floats (..., K) to bytes (..., K / 2) and scales (..., K / 64).

    `moments` are the second moments of what the rows are multiplied with: (K, K), or (R, K, K) for values (R, M, K).
    """
    if moments is not None and moments.ndim == 3:
        parts = [quantise_groups(part, of_part) for part, of_part in zip(values, moments, strict=True)]
        return torch.stack([packed for packed, _ in parts]), torch.stack([scales for _, scales in parts])
    follow = None if moments is None else _corrections(moments)
    rows = values.reshape(-1, values.shape[-1])
    packed = torch.empty(len(rows), rows.shape[1] // 2, dtype=torch.uint8)
    scales = torch.empty(len(rows), rows.shape[1] // GROUP, dtype=torch.float16)
    for k in range(0, len(rows), PIECE):
        some = slice(k, k + PIECE)
        piece = rows[some].float()
        groups = piece.reshape(-1, scales.shape[1], GROUP)
        whole, scales[some] = _rounded(groups) if follow is None else _rounded_in_turn(piece, follow)
        pairs = (whole + OFFSET).to(torch.uint8).view(len(whole), -1, 2)  # (n, K / 2, 2)
        packed[some] = pairs[..., 0] | (pairs[..., 1] << 4)
    leading = values.shape[:-1]
    return packed.view(*leading, -1), scales.view(*leading, -1)


def round_groups(values: Tensor) -> tuple[Tensor, Tensor]:
    """Floats (..., K) as their four bits have them, and the scales (..., K / 64) as float16; on the values' device."""
    whole, scale = _rounded(values.detach().float().reshape(-1, values.shape[-1] // GROUP, GROUP))
    rounded = (whole * scale.float()[..., None]).reshape(values.shape)
    return rounded, scale.reshape(*values.shape[:-1], -1)


def _corrections(moments: Tensor) -> Tensor:
    """What an error of 1 in each number asks of those after it, as an upper triangle (K, K)."""
    moments = moments.double()
    damped = moments + DAMPING * moments.diagonal().mean().clamp(min=1e-12) * torch.eye(len(moments))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(damped))
    upper: Tensor = torch.linalg.cholesky(inverse, upper=True)
    return upper.float()


def _rounded_in_turn(rows: Tensor, follow: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (n, K) to whole numbers (n, G, 64) and their scales (n, G), each number making up for those before it."""
    rows, n = rows.clone(), len(rows)
    whole = torch.empty(n, rows.shape[1] // GROUP, GROUP)
    scales = torch.empty(n, rows.shape[1] // GROUP, dtype=torch.float16)
    for g in range(scales.shape[1]):
        first, end = g * GROUP, (g + 1) * GROUP
        block, inside = rows[:, first:end], follow[first:end, first:end]
        scales[:, g] = _rounded(block[:, None])[1][:, 0]
        scale, errors = scales[:, g].float(), torch.empty(n, GROUP)
        for j in range(GROUP):
            whole[:, g, j] = (block[:, j] / scale).round_().clamp_(-STEPS, STEPS)
            errors[:, j] = (block[:, j] - whole[:, g, j] * scale) / inside[j, j]
            block[:, j + 1 :] -= errors[:, j, None] * inside[j, j + 1 :]
        rows[:, end:] -= errors @ follow[first:end, end:]
    return whole, scales


def _rounded(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Groups (n, G, 64) to whole numbers and their scales (n, G): the best for each group.

    Rounding in turn leaves groups whose largest whole number is below 7; they keep their scales when rounded again.
    """
    largest = groups.abs().amax(dim=-1)  # (n, G)
    close = CLOSE * groups.square().sum(dim=-1)
    least = torch.full_like(largest, torch.inf)
    best, scale = torch.zeros_like(groups), torch.ones_like(largest, dtype=torch.float16)
    for clip in (*CLIPS, *ROUNDED):
        tried = torch.where(largest > 0, largest * clip / STEPS, 1.0).to(torch.float16).clamp(min=1e-7)
        whole = (groups / tried.float()[..., None]).round_().clamp_(-STEPS, STEPS)
        error = (whole * tried.float()[..., None] - groups).square_().sum(dim=-1)
        better = error < (least if clip <= 1 else torch.minimum(least, close))
        least = torch.where(better, error, least)
        scale = torch.where(better, tried, scale)
        best = torch.where(better[..., None], whole, best)
    return best, scale


def widen_groups(packed: Tensor, scale: Tensor) -> Tensor:
    """Bytes (..., K / 2) and scales (..., K / 64) to float32 (..., K)."""
    return torch.from_numpy(numbers.widen_groups(packed.numpy(), as_floats(scale)))


def as_int8(packed: Tensor, scale: Tensor) -> Int8Matrix:
    """The same as int8 with one scale for each row, which moves a number by at most half of an int8 step."""
    return Int8Matrix(*map(torch.from_numpy, numbers.groups_as_int8(packed.numpy(), as_floats(scale))))
