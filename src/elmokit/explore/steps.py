"""Work in steps: a generator that yields how far it is and returns its result; and arrays in JSON.

Each step takes about a second at most, so that a caller can run it between other work, show progress, or stop.
"""

from base64 import b64encode
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

R = TypeVar("R")


class Progress(NamedTuple):
    """How far a piece of work is."""

    done: int
    total: int
    what: str = ""
    model: bool = False  # whether the next step runs the model


Steps = Generator[Progress, None, R]


def finish(steps: Steps[R]) -> R:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def packed(array: NDArray[Any]) -> dict[str, Any]:
    """Shape and little-endian bytes of float32 or int32, in base64."""
    kind = "float32" if array.dtype.kind == "f" else "int32"
    flat = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    return {"shape": list(array.shape), "type": kind, "data": b64encode(flat.tobytes()).decode("ascii")}
