"""One LSTM layer, all directions, in C. Directions never mix and rows do not either, so each thread takes some."""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from elmokit.native.library import CLibrary
from elmokit.native.matrices import Columns, PackedMatrix
from elmokit.native.numbers import ArrayMatrix, Floats, Int8Array
from elmokit.native.threads import side_by_side, thread_count
from elmokit.shape import LstmRules

STRETCH_BYTES = 16 << 20  # of input products held ahead
FEW_ROWS = 4  # that are not worth another thread


class CLayer(ctypes.Structure):
    """`Layer` of lstm.c."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("recurrent", ctypes.c_void_p),
        ("projection", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int32),
        ("cells", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("cell_clip", ctypes.c_float),
        ("output_clip", ctypes.c_float),
    )


class Direction:
    """What one direction's `Layer` points to."""

    def __init__(
        self,
        library: CLibrary,
        w_x: ArrayMatrix,
        w_h: ArrayMatrix,
        bias: Floats,
        projection: ArrayMatrix | None,
        rules: LstmRules,
    ) -> None:
        lanes = library.elmokit_lanes()
        packed = partial(PackedMatrix, most=library.elmokit_most(), halves=library.elmokit_halves())
        H = len(bias) // 4
        gates = Columns(4 * H, lanes=lanes, gates=True)
        whole = bias.astype(np.float32)  # a copy
        whole[2 * H : 3 * H] += np.float32(rules.forget_bias)
        self.bias = gates.order(whole)
        self.matrices = [packed(matrix, gates) for matrix in (w_x, w_h)]
        if projection is not None:
            outputs = Columns(_shape(projection)[0], lanes=lanes)
            self.matrices.append(packed(projection, outputs))
        self.structure = CLayer(
            self.matrices[0].address,
            self.matrices[1].address,
            None if projection is None else self.matrices[2].address,
            self.bias.ctypes.data,
            _shape(w_x)[1],
            H,
            H if projection is None else _shape(projection)[0],
            *(float("inf") if clip is None else clip for clip in (rules.cell_clip, rules.proj_clip)),
        )


class CLstm:
    """One layer; its matrices are laid out for this machine."""

    def __init__(
        self,
        library: CLibrary,
        w_x: Iterable[ArrayMatrix],
        w_h: Iterable[ArrayMatrix],
        bias: Floats,
        projection: Iterable[ArrayMatrix] | None,
        rules: LstmRules,
    ) -> None:
        self.library = library
        outs = [None] * len(bias) if projection is None else projection
        self.directions = [Direction(library, *parts, rules) for parts in zip(w_x, w_h, bias, outs, strict=True)]

    def __call__(
        self, x: Floats, h: Floats, c: Floats, steps: Sequence[int], *, keep: Floats | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Packed input (R, N, D) and a state (R, B, P), (R, B, H) to output (R, N, P) and the state behind it.

        All are float32; `keep` (R, N) or none: 0 starts a row anew before that step.
        """
        x = np.ascontiguousarray(x)
        h, c = h.copy(), c.copy()
        kept = None if keep is None else np.ascontiguousarray(keep)
        self._check(x, h, c, tuple(steps), kept)
        out = np.empty((*x.shape[:2], h.shape[2]), np.float32)  # (R, N, P)
        told = (ctypes.c_int32 * len(steps))(*steps)
        stretch = min(STRETCH_BYTES // (16 * c.shape[2]), x.shape[1])
        tasks: list[Callable[[], int]] = []
        for r, direction in enumerate(self.directions):
            places = [array[r].ctypes.data for array in (h, c, out)]
            masked = None if kept is None else kept[r].ctypes.data
            layer = ctypes.byref(direction.structure)
            for first, end in pairwise(_shares(tuple(steps), -(-thread_count() // len(self.directions)))):
                run = partial(self.library.elmokit_lstm, layer, len(steps), told, first, end, stretch)
                tasks.append(partial(run, x[r].ctypes.data, masked, *places))
        side_by_side(tasks)
        return out, h, c

    def _check(self, x: Floats, h: Floats, c: Floats, steps: tuple[int, ...], keep: Floats | None) -> None:
        """C would read and write beyond what does not fit."""
        R, N, B, layer = len(self.directions), sum(steps), h.shape[1], self.directions[0].structure
        expected = [(R, N, layer.inputs), (R, B, layer.outputs), (R, B, layer.cells), (R, N)]
        given = [x, h, c] if keep is None else [x, h, c, keep]
        shapes = [part.shape for part in given]
        if shapes != expected[: len(given)] or any(part.dtype != np.float32 for part in given):
            raise ValueError(f"x, h, c and keep are {shapes} of {x.dtype}; expected {expected[: len(given)]}, float32")
        if any(before < rows for before, rows in pairwise((B, *steps, 0))):
            raise ValueError(f"steps {steps} of {B} rows; expected the longest first, so that no step has more rows")


def _shape(matrix: ArrayMatrix) -> tuple[int, ...]:
    return matrix.values.shape if isinstance(matrix, Int8Array) else matrix.shape


def _shares(steps: tuple[int, ...], threads: int) -> list[int]:
    """Where to cut the rows so that each of some threads has about as many words."""
    rows = steps[0] if steps else 0
    threads = min(threads, rows // FEW_ROWS)
    if threads < 2:
        return [0, rows] if rows else []
    lengths = np.searchsorted(-np.array(steps), -np.arange(rows))  # (rows,) steps that a row takes part in
    words = lengths.cumsum()  # (rows,) of a row and all before it
    cuts = 1 + np.searchsorted(words, words[-1] * np.arange(1, threads) / threads)
    return sorted({0, *cuts.tolist(), rows})  # a long sentence may be worth several shares: there are fewer then
