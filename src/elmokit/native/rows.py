"""Rows of a table in C, in one call that keeps Python's lock: NumPy gives it away and then waits for other threads."""

import numpy as np
from numpy.typing import NDArray

from elmokit.native.library import c_library

Floats = NDArray[np.float32]


def take_or_zero(table: Floats, places: NDArray[np.int64]) -> tuple[Floats, int]:
    """The rows at these places of a table (V, D), zeros where a place is negative, and how many are. (n, D)"""
    library = c_library()
    if library is None or not table.flags.c_contiguous or table.dtype != np.float32:
        lost = places < 0
        rows = np.asarray(table[places], dtype=np.float32)
        rows[lost] = 0
        return rows, int(lost.sum())
    (V, D), n = table.shape, len(places)
    rows = np.empty((n, D), dtype=np.float32)
    found = library.elmokit_rows(n, V, 4 * D, table.ctypes.data, places.ctypes.data, rows.ctypes.data)
    if found < 0:
        raise IndexError(f"no row {int(places.max())} in a table of {V}")
    return rows, found
