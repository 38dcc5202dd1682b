"""Copies and sums by one thread: what torch's own give, and torch's own where only those will do."""

import pytest
import torch
from torch import Tensor

from elmokit import Elmo
from elmokit.kernels.cpu.c import c_library
from elmokit.kernels.cpu.copies import as_array, copy_of, put_rows, sum_of, take_rows, zeros_of

SHARED = ("add", "mul", "mean", "sum", "copy_", "fill_", "index_copy_", "index_fill_", "index", "cat", "where", "clone")
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [[], [2], [4, 0, 0, 3]])
def test_rows_are_taken(index: list[int], dtype: torch.dtype) -> None:
    source, numbers = draw(5, 3, dtype=dtype), torch.tensor(index, dtype=torch.int64)
    expected = source[index]
    assert torch.equal(take_rows(source, numbers), expected)
    assert torch.equal(take_rows(source.t().contiguous().t(), numbers), expected)
    out = source.new_empty(len(index), 3)
    assert take_rows(source, numbers, out=out) is out
    assert torch.equal(out, expected)
    wider = source.new_zeros(len(index), 6)  # a part of something else, as layers are of a stack
    take_rows(source, numbers, out=wider[:, :3])
    assert torch.equal(wider, torch.cat([expected, torch.zeros_like(expected)], dim=1))


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_are_put(dtype: torch.dtype) -> None:
    table, rows = draw(5, 3, dtype=dtype), draw(2, 3, dtype=dtype) + 9
    before = table.clone()
    put_rows(table, torch.tensor([4, 1]), rows)
    assert torch.equal(table[[4, 1]], rows)
    assert torch.equal(table[[0, 2, 3]], before[[0, 2, 3]])


@pytest.mark.parametrize("wrong", [-1, 5])
def test_rows_that_are_none_are_told(wrong: int) -> None:
    numbers = torch.tensor([0, wrong])
    with pytest.raises(IndexError, match="rows go from 0 to 4; got"):
        take_rows(draw(5, 3), numbers)
    with pytest.raises(IndexError, match="rows go from 0 to 4; got"):
        put_rows(draw(5, 3), numbers, draw(2, 3))


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_zeros_and_copies(dtype: torch.dtype) -> None:
    x, y = draw(2, 4, 3, dtype=dtype), draw(2, 4, dtype=dtype)[..., None].expand(2, 4, 3)
    assert torch.equal(sum_of(x, y), x + y)
    nothing = zeros_of((2, 3), like=x)
    assert nothing.dtype == dtype
    assert torch.equal(nothing, torch.zeros(2, 3, dtype=dtype))
    assert zeros_of((2, 3), like=x, dtype=torch.float32).dtype == torch.float32
    turned = x.transpose(1, 2)
    copy = copy_of(turned)
    assert torch.equal(copy, turned)
    assert copy.is_contiguous()
    assert copy.data_ptr() != x.data_ptr()


def test_gradients_flow() -> None:
    source, other = draw(5, 3).requires_grad_(), draw(2, 3).requires_grad_()
    assert as_array(source) is None
    sum_of(take_rows(source, torch.tensor([1, 1])), copy_of(other)).sum().backward()
    assert source.grad is not None
    assert source.grad.sum(dim=1).tolist() == [0, 6, 0, 0, 0]
    assert other.grad is not None


def test_what_only_stands_for_a_tensor_is_left_to_torch() -> None:
    """Shapes without numbers, as export has them."""
    with torch._subclasses.FakeTensorMode():
        source = torch.empty(5, 3)
        assert as_array(source) is None
        assert take_rows(source, torch.tensor([1, 2])).shape == (2, 3)
        assert sum_of(source, source).shape == (5, 3)
        assert zeros_of((4,), like=source).shape == (4,)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_recorded_program_works_on_what_it_is_given() -> None:
    """Not on the numbers that it was recorded with."""
    recorded = torch.jit.trace(
        lambda x, index: sum_of(take_rows(x, index), zeros_of((2, 3), like=x)), (draw(5, 3), torch.tensor([1, 2]))
    )
    other = draw(5, 3) + 7
    assert torch.equal(recorded(other, torch.tensor([4, 0])), other[[4, 0]])


@pytest.mark.skipif(c_library() is None, reason="nothing runs in C here, so torch's threads are at work anyway")
def test_no_thread_of_torch_is_woken() -> None:
    """Between text and vectors nothing of torch's works on so many numbers that it would share them out."""
    elmo = Elmo.from_pretrained("en", device="cpu")
    sentences = [[f"word{k}{row}" for k in range(30)] for row in range(30)]
    list(elmo.stream(sentences[:1]))
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True, acc_events=True) as profile:  # else 2.11 warns
        found = list(elmo.stream(sentences, layers="average"))
    assert len(found) == len(sentences)
    large = {event.name for event in profile.events() for shape in event.input_shapes if _size(shape) > 32768}
    assert "aten::view" in large, "else shapes were not seen"
    assert not large & {f"aten::{name}" for name in SHARED}


def _size(shape: list[int]) -> int:
    return torch.Size(shape).numel() if shape else 0
