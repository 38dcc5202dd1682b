"""A model folder to a network in C: its weights as arrays, held as a mode multiplies them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.batch import PackedOrder
from elmokit.chars import TypeRows
from elmokit.errors import ElmokitError, WeightsError
from elmokit.formats.tensors import TensorFile, open_tensors
from elmokit.native.checksums import checksums, crc32
from elmokit.native.library import CLibrary, compiled
from elmokit.native.lstm import CLstm
from elmokit.native.numbers import (
    ArrayMatrix,
    Floats,
    Int8Array,
    dequantise,
    from_bfloat16,
    groups_as_int8,
    quantise,
    to_bfloat16,
    widen_groups,
)
from elmokit.native.tokens import ArrayFilter, ArrayLinear, CTokens
from elmokit.shape import BiLMConfig
from elmokit.weights.described import SCALE, SOFTMAX, WEIGHTS, Described, check_range, check_shapes, check_stored

Mode = Literal["float32", "bfloat16", "int8"]


class StoredArrays:
    """A model's weights as its file holds them, mapped and checked; bfloat16 as its bits."""

    def __init__(self, described: Described) -> None:
        path = described.folder / WEIGHTS
        file = open_tensors(path, error=WeightsError, advice="fetch or copy it again")
        described.check_digest(file.metadata.get("digest"))
        held = [name for name in file.places if not name.startswith(SOFTMAX)]
        if described.stated.weights.checksums is not None:
            size = path.stat().st_size
            described.check_checksums(checksums(held, lambda name: file.checksum(name, crc32), size=size))
        self.arrays = {name: file.map(name) for name in held}
        self.kinds = {name: _kind(file, name) for name in held}
        self.names = [n for n in held if not (n.endswith(SCALE) and n.removesuffix(SCALE) in self.arrays)]
        check_stored({name: (self.kinds[name], self.arrays[name].shape) for name in held}, str(path))
        for name in held:
            if "float" in self.kinds[name]:
                _check_numbers(self._float(name), f"{path}: '{name}'")
        check_shapes({name: self.shape(name) for name in self.names}, described.config, str(path))

    @property
    def whole(self) -> bool:
        """Whether its matrices are stored as whole numbers."""
        return "float" not in self.kinds["lstm.0.weight_h"]

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.arrays[name].shape
        return (*shape[:-1], 2 * shape[-1]) if self.kinds[name] == "uint8" else shape

    def floats(self, name: str) -> Floats:
        """As float32."""
        if self.kinds[name] == "int8":
            return dequantise(Int8Array(self.arrays[name], self._float(name + SCALE)))
        if self.kinds[name] == "uint8":
            return widen_groups(self.arrays[name], self._float(name + SCALE))
        return self._float(name)

    def rows(self, name: str) -> Callable[[NDArray[np.integer[Any]]], Floats]:
        """What gives rows of a table by number as float32; only those asked for are read."""
        values, kind = self.arrays[name], self.kinds[name]
        if "float" in kind:
            return lambda ids: _widened(values[ids], kind)
        scale, scaled = self.arrays[name + SCALE], self.kinds[name + SCALE]
        if kind == "int8":
            return lambda ids: dequantise(Int8Array(values[ids], _widened(scale[ids], scaled)))
        return lambda ids: widen_groups(values[ids], _widened(scale[ids], scaled))

    def held(self, name: str, mode: Mode) -> ArrayMatrix:
        """As a mode multiplies it: int8, bfloat16's bits or float32."""
        values, kind = self.arrays[name], self.kinds[name]
        if mode == "int8" and kind == "int8" and self.arrays[name + SCALE].ndim == values.ndim - 1:
            return Int8Array(values, self._float(name + SCALE))
        if mode == "int8" and kind == "uint8":
            return groups_as_int8(values, self._float(name + SCALE))
        if mode == "bfloat16" and kind == "bfloat16":
            return values
        wide = self.floats(name)
        return quantise(wide, axes=values.ndim - 1) if mode == "int8" else _rounded(wide, mode)

    def _float(self, name: str) -> Floats:
        return _widened(self.arrays[name], self.kinds[name])


class LiteModel:
    """The biLM in one mode."""

    def __init__(self, config: BiLMConfig, weights: StoredArrays, mode: Mode) -> None:
        self.config, self.mode, library = config, mode, _library()
        tokens = config.tokens
        self.words = weights.rows("tokens.words.weight") if tokens.word_dim else None
        self.encoder = CTokens(
            library,
            weights.floats("tokens.characters.weight") if tokens.char_dim else None,
            [
                ArrayFilter(*(weights.floats(f"tokens.convolutions.{k}.{part}") for part in ArrayFilter._fields))
                for k in range(len(tokens.filters) if tokens.char_dim else 0)
            ],
            [
                (
                    _linear(weights, f"tokens.highways.{k}.transform", mode),
                    _linear(weights, f"tokens.highways.{k}.gate", mode),
                )
                for k in range(tokens.n_highway if tokens.char_dim else 0)
            ],
            _projection(weights, mode) if tokens.project else None,
            pad=tokens.pad_id,
            activation=tokens.activation,
            word_dim=tokens.word_dim,
        )
        self.lstm = [
            CLstm(
                library,
                _sides(weights.held(f"lstm.{k}.weight_x", mode)),
                _sides(weights.held(f"lstm.{k}.weight_h", mode)),
                weights.floats(f"lstm.{k}.bias"),
                _sides(weights.held(f"lstm.{k}.projection", mode)) if config.lstm.project else None,
                config.lstm.rules,
            )
            for k in range(config.n_layers)
        ]

    def tokens(self, types: TypeRows) -> Floats:
        """Word types (U, W) to vectors (U, P)."""
        return self.encoder(types) if self.words is None else self.encoder(types[:, 1:], self.words(types[:, 0]))

    def layers(self, vectors: Floats, index: NDArray[np.int64], lengths: NDArray[np.int64]) -> Floats:
        """Word vectors (U, P), which word is where (B, T), lengths (B,) to all layers (L, B, T, D), with boundaries."""
        order = PackedOrder.of(lengths, backward=[side == "backward" for side in self.config.directions])
        types = index.reshape(-1)[order.flat]  # (R, N)
        R, N = types.shape
        P, B, T = vectors.shape[1], *index.shape
        x = vectors.take(types.reshape(-1), axis=0).reshape(R, N, P)
        h, c = np.zeros((R, B, P), np.float32), np.zeros((R, B, self.config.lstm.cell_dim), np.float32)
        made = [x]
        for k, lstm in enumerate(self.lstm):
            y, _, _ = lstm(x, h, c, order.steps)
            x = np.add(x, y) if k > 0 and self.config.skip_connections else y
            made.append(x)
        values = np.empty((len(made), B * T, R * P), np.float32)
        rows = order.back()
        for layer, out in zip(made, values, strict=True):
            layer.reshape(R * N, P).take(rows, axis=0, out=out.reshape(-1, P), mode="clip")
        if B * T > N:
            values[:, order.padding()] = 0
        return values.reshape(len(made), B, T, R * P)


def _library() -> CLibrary:
    found = compiled()
    if found.library is None:
        raise ElmokitError(f"elmokit.lite runs in C alone, which is not there: {found.missing}")
    return found.library


def _linear(weights: StoredArrays, name: str, mode: Mode) -> ArrayLinear:
    return ArrayLinear(weights.held(f"{name}.weight", mode), weights.floats(f"{name}.bias"))


def _projection(weights: StoredArrays, mode: Mode) -> ArrayLinear:
    """In int8 its weights are multiplied as floats; `kernels.cpu.inference` says why."""
    linear = _linear(weights, "tokens.projection", mode)
    matrix = linear.matrix
    return ArrayLinear(dequantise(matrix) if isinstance(matrix, Int8Array) else matrix, linear.bias)


def _sides(matrix: ArrayMatrix) -> Sequence[ArrayMatrix]:
    """A stack (R, N, K) as R matrices."""
    return [Int8Array(*one) for one in zip(*matrix, strict=True)] if isinstance(matrix, Int8Array) else list(matrix)


def _widened(values: NDArray[Any], kind: str) -> Floats:
    return from_bfloat16(values) if kind == "bfloat16" else values.astype(np.float32, copy=False)


def _rounded(values: Floats, mode: Mode) -> NDArray[Any]:
    return to_bfloat16(values) if mode == "bfloat16" else values


def _kind(file: TensorFile, name: str) -> str:
    dtype = file.places[name].dtype
    return "bfloat16" if dtype == "BF16" else file.places[name].numpy.name


def _check_numbers(values: Floats, what: str) -> None:
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    check_range(low, high, lambda: (int((~np.isfinite(values)).sum()), values.size), what)
