"""What checking and timing the GPU kernels share: words, a step as a CUDA graph, jobs in processes of their own."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch
from torch import Tensor

OFFICIAL = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
WORKERS = 12  # kernels compile in parallel; each process writes to Triton's cache on disk


def words(U: int, C: int, pad: int) -> Tensor:
    """Rows with the lengths of English word types: about 7.5 bytes, few over 20; begin and end marks around them."""
    lengths = torch.exp(torch.randn(U) * 0.42 + 1.92).round().clamp(1, C - 2).long()
    rows = torch.randint(98, 123, (U, C), dtype=torch.int32)
    rows[:, 0] = 259
    place = torch.arange(C)
    rows[place == (lengths + 1)[:, None]] = 260
    rows[place > (lengths + 1)[:, None]] = pad
    return rows.cuda()


def captured(step: Callable[[], object]) -> tuple[Callable[[], None], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


def in_parallel(jobs: dict[str, tuple[Callable[..., dict[str, float]], object]]) -> Iterator[tuple[str, object]]:
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(job, argument): name for name, (job, argument) in jobs.items()}
        for done in as_completed(waiting):
            failure = done.exception()
            yield waiting[done], done.result() if failure is None else f"{type(failure).__name__}: {failure}"
