"""Arrays of an HDF5 file, checked before they are read: a file that lies about its contents allocates nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.weights.pretrained import check_numbers

FLOATS = {2: torch.float16, 4: torch.float32, 8: torch.float64}  # by item size
MOST_PACKED = 1100  # times that HDF5's compression can shrink data: beyond it, the data is not there
OTHER_MODEL = "options.json and the weights seem to belong to different models"


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """The file, open for reading; whatever the library says about a damaged one becomes one clear error."""
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    if not h5py.is_hdf5(path):
        raise WeightsError(f"{path}: not an HDF5 file{_guess(path)}; expected the weights of an official ELMo model")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:  # what the library says differs by damage
        raise WeightsError(f"{path}: damaged or incomplete HDF5 file ({error}); fetch or copy it again") from None


def _guess(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(64)
    if not start:
        return " (it is empty)"
    if start.startswith(b"version https://git-lfs"):
        return " but a Git LFS pointer to one (run: git lfs pull)"
    return " but a web page" if start.lstrip()[:1] == b"<" else ""


def find_array(file: h5py.File, key: str, shape: tuple[int | None, ...]) -> h5py.Dataset:
    """The array under `key`, known to be of floats, of that shape (None: any size) and to lie in this file."""
    where = f"{file.filename}: '{key}'"
    wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
    if key not in file:
        raise WeightsError(
            f"{where} is missing, expected an array of shape {wanted}; {OTHER_MODEL}, or it is incomplete"
        )
    array = file[key]
    if not isinstance(array, h5py.Dataset):
        raise WeightsError(f"{where} is a group, expected an array of shape {wanted}")
    if array.dtype.kind != "f" or array.dtype.itemsize not in FLOATS:
        raise WeightsError(f"{where} has type {array.dtype}, expected float32 (float16 and float64 are read too)")
    if len(array.shape) != len(shape) or any(
        n not in (None, found) for n, found in zip(shape, array.shape, strict=True)
    ):
        raise WeightsError(f"{where} has shape {array.shape}, expected {wanted}; {OTHER_MODEL}")
    if array.file.filename != file.filename or array.is_virtual or array.external:
        raise WeightsError(f"{where} points into another file, expected the weights themselves")
    if array.id.get_storage_size() * MOST_PACKED < array.nbytes:
        raise WeightsError(
            f"{where} declares {array.nbytes:,} bytes but holds none of them; the file was not written to its end"
        )
    return array


def float_type(array: h5py.Dataset) -> torch.dtype:
    return FLOATS[array.dtype.itemsize]


def load(array: h5py.Dataset, *, allow_nonfinite: bool) -> Tensor:
    """The numbers as they stand, in this machine's byte order."""
    values = torch.from_numpy(np.asarray(array[...], dtype=array.dtype.newbyteorder("=")))
    if not allow_nonfinite:
        check_numbers(values, f"{array.file.filename}: '{array.name.lstrip('/')}'")
    return values
