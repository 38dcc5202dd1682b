"""Our own .safetensors: what the library reads is what we wrote, and no header is believed unchecked."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import FormatError, WeightsError
from elmokit.formats.tensors import Stored, open_tensors, write_tensors

ARRAYS = {
    "codes": np.arange(-6, 6, dtype=np.int8).reshape(4, 3),
    "scales": np.linspace(0, 1, 4, dtype=np.float32),
    "half": np.array([[1.5]], dtype=np.float16),
    "total": np.array([1e300, -1.0]),
    "none": np.zeros((0, 3), dtype=np.uint32),
    "one": np.array(7, dtype=np.int64),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "a.safetensors", ARRAYS, metadata={"b": "2", "a": "1"})
    return tmp_path / "a.safetensors"


def test_the_library_and_we_read_the_same(path: Path) -> None:
    found = safetensors.numpy.load_file(path)
    opened = open_tensors(path, {"codes": ("I8 F16", 2), "one": ("I64", 0)})
    assert opened.metadata == {"a": "1", "b": "2"}
    assert set(opened.places) == set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
        np.testing.assert_array_equal(opened.map(name), array)
        if array.ndim:
            np.testing.assert_array_equal(opened.read(name), array)
            np.testing.assert_array_equal(opened.read(name, 1, 3), array[1:3])
        place = opened.places[name]
        assert place.begin % place.numpy.itemsize == 0


def test_what_the_library_writes_opens(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(safetensors.numpy.save(ARRAYS, metadata={"a": "1"}))
    opened = open_tensors(tmp_path / "b.safetensors")
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(opened.map(name), array)


def test_pieces_checksums_and_modes(tmp_path: Path, path: Path) -> None:
    codes = Stored("I8", (4, 3), [ARRAYS["codes"][:1].tobytes(), ARRAYS["codes"][1:].tobytes()])
    before = os.umask(0o022)
    try:
        write_tensors(tmp_path / "c.safetensors", {"codes": codes})
    finally:
        os.umask(before)
    assert (tmp_path / "c.safetensors").stat().st_mode & 0o777 == 0o644
    opened = open_tensors(tmp_path / "c.safetensors")
    assert opened.checksum("codes") == codes.checksum("codes") == open_tensors(path).checksum("codes")
    assert codes.checksum("other") != codes.checksum("codes") != codes._replace(shape=(3, 4)).checksum("codes")
    data = bytearray(path.read_bytes())
    data[open_tensors(path).places["codes"].begin + 5] ^= 1
    path.write_bytes(data)
    assert open_tensors(path).checksum("codes") != codes.checksum("codes")
    assert open_tensors(path).checksum("scales") == Stored.of(ARRAYS["scales"]).checksum("scales")


def rewrite(path: Path, change: Any) -> None:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps(change(header) or header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


HEADERS: dict[str, tuple[Any, str]] = {
    "a list": (lambda h: [1], "expected an object"),
    "no shape": (lambda h: h["codes"].pop("shape") and None, "shape is missing"),
    "negative": (lambda h: h["codes"].update(shape=[-4, -3]), r"shape\[0\] is -4"),
    "huge": (lambda h: h["codes"].update(shape=[2**70]), "whole number"),
    "product too large": (lambda h: h["codes"].update(shape=[2**40, 2**40]), "is said to be at"),
    "fraction": (lambda h: h["codes"].update(shape=[1.5]), "1.5"),
    "boolean": (lambda h: h["codes"].update(shape=[True]), "true"),
    "type": (lambda h: h["codes"].update(dtype="F8"), "'codes' has type 'F8'"),
    "type is a number": (lambda h: h["codes"].update(dtype=8), "expected a string"),
    "other type": (lambda h: h["codes"].update(dtype="F32"), "is said to be at"),
    "overlap": (lambda h: h["codes"].update(data_offsets=h["scales"]["data_offsets"], shape=[16]), "is said to be at"),
    "backwards": (lambda h: h["codes"].update(data_offsets=[12, 0]), "is said to be at"),
    "one offset": (lambda h: h["codes"].update(data_offsets=[0]), "list of 2 values"),
    "unknown field": (lambda h: h["codes"].update(more=1), "unknown field 'more'"),
    "metadata": (lambda h: h.update(__metadata__={"a": 1}), "a is 1; expected a string"),
    "gone": (lambda h: h.pop("codes") and None, "describes|is said to be at"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie(path: Path, name: str) -> None:
    change, message = HEADERS[name]
    rewrite(path, change)
    with pytest.raises(FormatError, match=message) as caught:
        open_tensors(path)
    assert str(caught.value).startswith(str(path))


def test_what_must_be_there(path: Path) -> None:
    with pytest.raises(WeightsError, match="'vectors' is missing; fetch it"):
        open_tensors(path, {"vectors": ("F32", 2)}, error=WeightsError, advice="fetch it")
    with pytest.raises(FormatError, match=r"'codes' is I8 of shape \(4, 3\), expected F32 or F16 with 2 axes"):
        open_tensors(path, {"codes": ("F32 F16", 2)})
    with pytest.raises(FormatError, match="'scales' is F32"):
        open_tensors(path, {"scales": ("F32", 2)})
    with pytest.raises(FormatError, match="cannot be read"):
        open_tensors(path.with_name("other"))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damage_anywhere_is_a_clear_error_or_harmless(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Cut, longer, or with other bytes in the header: never another exception, never a tensor outside the file."""
    path = tmp_path_factory.mktemp("t") / "a.safetensors"
    write_tensors(path, ARRAYS, metadata={"a": "1"})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        opened = open_tensors(path)
    except FormatError:
        return
    for name in opened.places:
        if opened.places[name].dtype != "BF16":
            opened.map(name).tobytes()
        opened.checksum(name)
