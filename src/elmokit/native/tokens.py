"""The token encoder in C: characters, words or both. Words do not mix, so each thread takes some."""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.native.library import CLibrary
from elmokit.native.matrices import Columns, PackedMatrix
from elmokit.native.numbers import ArrayMatrix, Floats, aligned
from elmokit.native.threads import side_by_side, thread_count

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
        ("filters", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("n_banks", ctypes.c_int32),
        ("n_highways", ctypes.c_int32),
        ("bends", ctypes.c_int32),
        ("word_dim", ctypes.c_int32),
        ("banks", ctypes.c_void_p),
        ("highways", ctypes.c_void_p),
        ("projection", ctypes.c_void_p),
        ("projection_bias", ctypes.c_void_p),
    )


class ArrayLinear(NamedTuple):
    """A matrix and its bias."""

    matrix: ArrayMatrix
    bias: Floats


class ArrayFilter(NamedTuple):
    """One bank of n filters of the same width over E-dimensional characters."""

    weight: Floats  # (n, E, width)
    bias: Floats  # (n,)


class CompiledLinear:
    """What a linear layer's structure points to."""

    def __init__(self, library: CLibrary, linear: ArrayLinear, *, positive: bool = True) -> None:
        columns = Columns(len(linear.bias), lanes=library.elmokit_lanes())
        most, halves = library.elmokit_most(), library.elmokit_halves()
        self.matrix = PackedMatrix(linear.matrix, columns, most=most, halves=halves, positive=positive)
        self.bias = columns.order(linear.bias.astype(np.float32))


class CompiledBank:
    """What one width's filters give for each character at each place."""

    def __init__(self, library: CLibrary, characters: Floats, bank: ArrayFilter) -> None:
        n, E, width = bank.weight.shape
        lanes = library.elmokit_lanes()
        columns = Columns(n, lanes=lanes)
        given = np.ascontiguousarray(characters, np.float32), np.ascontiguousarray(bank.weight, np.float32)
        pieces = columns.blocks
        self.table = aligned((pieces, len(characters), width, 4 * lanes), np.float32)
        places = (part.ctypes.data for part in (*given, self.table))
        side_by_side([partial(library.elmokit_table, len(characters), E, n, width, *places)])
        self.bias = columns.order(bank.bias.astype(np.float32))
        self.structure = CBank(width, n, pieces, self.table.ctypes.data, self.bias.ctypes.data)


class CTokens:
    """Word types (U, C), and vectors of their own (U, word_dim) if there are such, to vectors (U, P).

    Without characters there are no filters and no highways.
    """

    def __init__(
        self,
        library: CLibrary,
        characters: Floats | None,
        filters: Sequence[ArrayFilter],
        highways: Sequence[tuple[ArrayLinear, ArrayLinear]],
        projection: ArrayLinear | None,
        *,
        pad: int | None,
        activation: Literal["relu", "tanh"] = "relu",
        word_dim: int = 0,
    ) -> None:
        characters = np.zeros((0, 0), np.float32) if characters is None else characters
        self.library, self.n_characters, self.word_dim = library, len(characters), word_dim
        self.widest = max((bank.weight.shape[2] for bank in filters), default=0)
        self.banks = [CompiledBank(library, characters, bank) for bank in filters]
        compiled, positive = partial(CompiledLinear, library), activation == "relu"
        self.highways = [[compiled(linear, positive=positive) for linear in pair] for pair in highways]
        self.projection = None if projection is None else compiled(projection, positive=positive and not word_dim)
        n_filters = sum(len(bank.bias) for bank in filters)
        self.outputs = word_dim + n_filters if projection is None else len(projection.bias)
        banks = (CBank * len(filters))(*(bank.structure for bank in self.banks))
        pairs = [
            CHighway(t.matrix.address, g.matrix.address, t.bias.ctypes.data, g.bias.ctypes.data)
            for t, g in self.highways
        ]
        passes = (CHighway * len(pairs))(*pairs)
        self.arrays = banks, passes
        self.structure = CEncoder(
            self.n_characters,
            -1 if pad is None else pad,
            n_filters,
            self.outputs,
            len(banks),
            len(passes),
            activation == "tanh",
            word_dim,
            ctypes.addressof(banks),
            ctypes.addressof(passes),
            None if self.projection is None else self.projection.matrix.address,
            None if self.projection is None else self.projection.bias.ctypes.data,
        )

    def __call__(self, types: NDArray[np.integer[Any]], words: Floats | None = None) -> Floats:
        U, C = types.shape
        out = np.empty((U, self.outputs), np.float32)
        if not U:
            return out
        if self.widest > C:
            raise ValueError(f"words of {C} characters; expected {self.widest} or more")
        low, high = (types.min(), types.max()) if C else (0, -1)
        if low < 0 or high >= self.n_characters:
            raise IndexError(f"characters go from 0 to {self.n_characters - 1}; met {low} to {high}")
        if (0 if words is None else words.shape[1]) != self.word_dim or (words is not None and len(words) != U):
            raise ValueError(f"word vectors {words if words is None else words.shape}; expected {(U, self.word_dim)}")
        chars = types.astype(np.int32, order="C")  # (U, C)
        own = np.empty((U, 0), np.float32) if words is None else np.ascontiguousarray(words, np.float32)
        share = max(-(-U // thread_count()), FEW_WORDS)
        run = partial(self.library.elmokit_tokens, ctypes.byref(self.structure))
        side_by_side(
            [
                partial(run, min(share, U - k), C, *(part[k:].ctypes.data for part in (chars, own, out)))
                for k in range(0, U, share)
            ]
        )
        return out
