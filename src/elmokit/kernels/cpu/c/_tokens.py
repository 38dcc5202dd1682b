"""The token encoder of characters alone, with ReLU, in C. Words do not mix, so each thread takes some."""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.kernels.char_cnn import Filter
from elmokit.kernels.cpu.c._library import CLibrary
from elmokit.kernels.cpu.c._matrices import Columns, PackedMatrix
from elmokit.kernels.cpu.c._threads import side_by_side, thread_count
from elmokit.kernels.cpu.int8 import Matrix

FEW_WORDS = 4  # that are not worth another thread


class CBank(ctypes.Structure):
    """`Bank` of tokens.c."""

    _fields_ = (
        ("width", ctypes.c_int32),
        ("filters", ctypes.c_int32),
        ("pieces", ctypes.c_int32),
        ("table", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class CHighway(ctypes.Structure):
    """`Highway` of tokens.c."""

    _fields_ = (
        ("transform", ctypes.c_void_p),
        ("gate", ctypes.c_void_p),
        ("transform_bias", ctypes.c_void_p),
        ("gate_bias", ctypes.c_void_p),
    )


class CEncoder(ctypes.Structure):
    """`Encoder` of tokens.c."""

    _fields_ = (
        ("characters", ctypes.c_int32),
        ("pad", ctypes.c_int32),
        ("features", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("n_banks", ctypes.c_int32),
        ("n_highways", ctypes.c_int32),
        ("banks", ctypes.c_void_p),
        ("highways", ctypes.c_void_p),
        ("projection", ctypes.c_void_p),
        ("projection_bias", ctypes.c_void_p),
    )


class Linear(NamedTuple):
    """A matrix and its bias."""

    matrix: Matrix
    bias: Tensor


class CompiledLinear:
    """What a linear layer's structure points to."""

    def __init__(self, library: CLibrary, linear: Linear) -> None:
        columns = Columns(len(linear.bias), lanes=library.elmokit_lanes())
        self.matrix = PackedMatrix(linear.matrix, columns, most=library.elmokit_most(), positive=True)
        self.bias = columns.order(linear.bias.float())


class CompiledBank:
    """What one width's filters give for each character at each place."""

    def __init__(self, library: CLibrary, characters: Tensor, bank: Filter) -> None:
        n, _, width = bank.weight.shape
        lanes = library.elmokit_lanes()
        columns = Columns(n, lanes=lanes)
        given = torch.einsum("ae,new->naw", characters.float(), bank.weight.float())  # (n, A, width)
        pieces = columns.order(given).view(-1, 4 * lanes, *given.shape[1:])
        self.table = pieces.permute(0, 2, 3, 1).contiguous()  # (pieces, A, width, 4 * W)
        self.bias = columns.order(bank.bias.float())
        self.structure = CBank(width, n, len(pieces), self.table.data_ptr(), self.bias.data_ptr())


class CompiledTokens(nn.Module):
    """Word types (U, C) to vectors (U, P), in place of a `TokenEncoder` of characters alone."""

    def __init__(
        self,
        library: CLibrary,
        characters: Tensor,
        filters: Sequence[Filter],
        highways: Sequence[tuple[Linear, Linear]],
        projection: Linear | None,
        *,
        pad: int | None,
    ) -> None:
        super().__init__()
        self.library, self.n_characters = library, len(characters)
        self.widest = max(bank.weight.shape[2] for bank in filters)
        self.banks = [CompiledBank(library, characters, bank) for bank in filters]
        self.highways = [[CompiledLinear(library, linear) for linear in pair] for pair in highways]
        self.projection = None if projection is None else CompiledLinear(library, projection)
        features = sum(len(bank.bias) for bank in filters)
        self.outputs = features if projection is None else len(projection.bias)
        banks = (CBank * len(filters))(*(bank.structure for bank in self.banks))
        pairs = [
            CHighway(t.matrix.address, g.matrix.address, t.bias.data_ptr(), g.bias.data_ptr()) for t, g in self.highways
        ]
        passes = (CHighway * len(pairs))(*pairs)
        self.arrays = banks, passes
        self.structure = CEncoder(
            self.n_characters,
            -1 if pad is None else pad,
            features,
            self.outputs,
            len(banks),
            len(passes),
            ctypes.addressof(banks),
            ctypes.addressof(passes),
            None if self.projection is None else self.projection.matrix.address,
            None if self.projection is None else self.projection.bias.data_ptr(),
        )

    @torch.no_grad()
    def forward(self, types: Tensor) -> Tensor:
        U, C = types.shape
        out = torch.empty(U, self.outputs, dtype=torch.float32, device="cpu")
        if not U:
            return out
        if self.widest > C or types.device.type != "cpu":
            raise ValueError(f"words of {C} characters on {types.device}; expected {self.widest} or more, on a CPU")
        given = types.numpy()
        low, high = given.min(), given.max()
        if low < 0 or high >= self.n_characters:
            raise IndexError(f"characters go from 0 to {self.n_characters - 1}; met {low} to {high}")
        chars = torch.from_numpy(given.astype(np.int32, order="C"))  # (U, C)
        share = max(-(-U // thread_count()), FEW_WORDS)
        pieces = zip(torch.split(chars, share), torch.split(out, share), strict=True)
        run = partial(self.library.elmokit_tokens, ctypes.byref(self.structure))
        side_by_side([partial(run, len(words), C, words.data_ptr(), made.data_ptr()) for words, made in pieces])
        return out
