"""Arrays to a device and back: cut as asked, equal to what the device holds, and never written to again."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmokit.encoders import _transfers as transfers
from elmokit.encoders._transfers import download, grouped, locked, upload
from elmokit.encoders.results import per_sentence

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@given(st.lists(st.integers(0, 9)), st.integers(0, 20))
def test_groups_keep_the_order_and_the_limit(sizes: list[int], most: int) -> None:
    groups = list(grouped(sizes, most=most))
    assert [size for group in groups for size in group] == sizes
    assert all(sum(group) <= most or len(group) == 1 for group in groups)
    assert all(sum(a) + b[0] > most for a, b in pairwise(groups)), "as few as can be"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("piece", [1, 100, 1 << 20])
def test_what_arrives_is_what_was_there(
    device: torch.device, dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "PIECE_BYTES", piece)
    sizes = [3, 0, 5, 1, 0]
    rows = torch.arange(36.0, dtype=dtype).view(9, 4)
    found = download(rows.clone().to(device), sizes)
    copies = [part.copy() for part in found]
    for k in range(5):
        download(rows.to(device) + k, sizes)
    for part, copy, expected in zip(found, copies, rows.split(sizes), strict=True):
        np.testing.assert_array_equal(part, expected.numpy())
        np.testing.assert_array_equal(part, copy)
        assert part.dtype == expected.numpy().dtype
    assert download(rows[:0].to(device), []) == []


def test_upload_and_locked_copy(device: torch.device) -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    there = upload(array, device)
    host = locked(torch.from_numpy(array))
    assert (there.device.type, there.dtype, host.dtype) == (device.type, torch.int32, torch.int32)
    assert host.is_pinned() == torch.cuda.is_available()
    array[:] = 0 if device.type == "cuda" else array
    np.testing.assert_array_equal(there.cpu().numpy(), [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(host.numpy(), [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("layers", [(), (1,), (3,)])
@pytest.mark.parametrize("normalise", [False, True])
def test_each_sentence_gets_its_own_positions(
    device: torch.device, layers: tuple[int, ...], dtype: torch.dtype, normalise: bool
) -> None:
    lengths = [4, 0, 1, 6]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]  # (B, T)
    draw = torch.Generator().manual_seed(0)
    values = torch.randn(*layers, 4, 6, 5, generator=draw).to(dtype)
    found = per_sentence(values.to(device), mask.to(device), normalise=normalise)
    for b, (part, length) in enumerate(zip(found, lengths, strict=True)):
        wide = values[..., b, :length, :].to(torch.promote_types(dtype, torch.float32))
        expected = torch.nn.functional.normalize(wide, dim=-1) if normalise else wide
        assert part.shape == (*layers, length, 5)
        assert part.flags.c_contiguous
        assert part.flags.writeable
        np.testing.assert_allclose(part, expected.numpy(), rtol=1e-6, atol=0 if not normalise else 1e-7)
    before = [part.copy() for part in found]
    values.zero_()
    for part, copy in zip(found, before, strict=True):
        np.testing.assert_array_equal(part, copy)
