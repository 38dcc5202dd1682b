"""Recording CUDA graphs, safe beside other threads: those that record, too, and those that run without graphs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, *, pool: Any = None) -> Iterator[None]:
    """What is launched in here goes into the graph and does not run; `stream` is one that nothing else uses.

    A recording begins with a wait for the whole device, which would break another one: threads take turns, whatever
    model they record. The stream is named, since torch's default for it is one for all threads, on one device.
    """
    with _ONE_AT_A_TIME, torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        yield
