"""An exported ONNX model run by onnxruntime: NumPy in, NumPy out, no torch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.batch import TokenBatch
from elmokit.chars import TypeRows
from elmokit.errors import InputError, MissingExtraError, WeightsError
from elmokit.export.described import Description

CPU = ("CPUExecutionProvider",)


class OnnxSession:
    """`threads=None` leaves the number to onnxruntime; `providers` are its names of places to run."""

    def __init__(
        self, path: Path, described: Description, *, threads: int | None = None, providers: Sequence[str] = CPU
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("running ONNX models", extra="onnx") from error
        if unknown := [name for name in providers if name not in onnxruntime.get_available_providers()]:
            have = ", ".join(onnxruntime.get_available_providers())
            raise InputError(f"onnxruntime has no provider {', '.join(unknown)} here; available are {have}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 3  # errors
        self.described = described
        try:
            self.session = onnxruntime.InferenceSession(path, options, providers=list(providers))
        except Exception as error:  # onnxruntime's own kinds have no common base but this
            raise WeightsError(f"{path}: onnxruntime cannot load it ({error}); export the model again") from None

    def layers(self, batch: TokenBatch) -> NDArray[np.float32]:
        """All layers with boundaries, zero at padding. (L, B, T, D)"""
        types = trim(batch.types, pad_id=self.described.pad_id, widest=self.described.widest_filter)
        values: NDArray[np.float32]
        (values,) = self.session.run(["layers"], {"types": types, "index": batch.index, "lengths": batch.lengths})
        return values


def trim(types: TypeRows, *, pad_id: int | None, widest: int) -> TypeRows:
    """Rows without the columns that are padding in every window: the maxima stay, the convolutions get shorter.

    After the longest word all windows are the same, and one of them is enough: as many columns of padding as the widest
    filter has.
    """
    if pad_id is None:
        return types
    used = np.flatnonzero((types != pad_id).any(axis=0))  # (columns,)
    return np.ascontiguousarray(types[:, : int(used[-1]) + 1 + widest])
