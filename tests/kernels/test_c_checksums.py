"""CRC-32 in C against zlib's, for every length, place in memory and start."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.native import checksums
from elmokit.native.checksums import crc32
from elmokit.native.library import c_library

needs_library = pytest.mark.skipif(c_library() is None, reason="no library was built, no AVX2, or ELMOKIT_NATIVE=0")
NOISE = np.random.default_rng(0).bytes(100_000)


@needs_library
@given(
    begin=st.integers(0, 70),
    size=st.integers(0, 400) | st.integers(4_000, 90_000),
    start=st.sampled_from([0, 1, 0x80000000, 0xFFFFFFFF]),
)
def test_as_zlib(begin: int, size: int, start: int) -> None:
    data = memoryview(NOISE)[begin : begin + size]
    assert crc32(data, start) == zlib.crc32(data, start)


@needs_library
def test_short_buffers_in_c_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "WORTH_IT", 0)
    for size in range(300):
        assert crc32(NOISE[:size], 7) == zlib.crc32(NOISE[:size], 7)


@needs_library
def test_in_pieces_where_it_is_longer_than_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "AT_ONCE", 1_000)
    assert crc32(NOISE) == zlib.crc32(NOISE)


@needs_library
def test_most_of_a_buffer_is_added_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    library = c_library()
    assert library is not None
    rest: list[int] = []
    monkeypatch.setattr(zlib, "crc32", lambda data, value: rest.append(len(data)) or value)
    crc32(NOISE)
    assert rest[0] < 64 or library.variant == "neon"  # which has no instruction for it


@needs_library
def test_any_numbers_of_one_piece() -> None:
    numbers = np.arange(6_000, dtype=np.float32).reshape(60, 100)
    assert crc32(numbers) == zlib.crc32(numbers.tobytes())


def test_without_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "c_library", lambda: None)
    assert crc32(NOISE, 3) == zlib.crc32(NOISE, 3)


@pytest.mark.parametrize("size", [1, checksums.MUCH])
def test_of_many(size: int) -> None:
    assert checksums.checksums(["a", "b"], str.upper, size=size) == {"a": "A", "b": "B"}
