"""One process or many: what `torchrun` says about this one, the collective calls that training needs, and signals."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.encoders.places import pick_device
from elmokit.errors import ElmokitError


@dataclass(frozen=True, slots=True)
class World:
    """This process and the others; alone, every call does nothing."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    @contextmanager
    def joined(cls, device: str | torch.device | None = None) -> Iterator["World"]:
        """This process and the others that torchrun started, each with a GPU of its own where there are GPUs.

        A device with a number, such as "cuda:0", is shared by all processes of a machine. Afterwards random numbers,
        the current GPU and the process group are what they were before.
        """
        size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        place = pick_device(device or "auto")
        cuda, backend = place.type == "cuda", backend_for(place, size)
        if place == torch.device("cuda"):
            place = pick_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        starts = size > 1 and not dist.is_initialized()
        if starts:
            patience = timedelta(hours=12)  # the first process may prepare the corpus for long
            dist.init_process_group(backend, timeout=patience)
        try:
            current = torch.cuda.device(place) if cuda else nullcontext()
            with current, torch.random.fork_rng(devices=[place] if cuda else []):
                yield cls(rank, size, place)
        except (MemoryError, RuntimeError) as error:  # torch's own errors are RuntimeErrors
            if not _is_memory(error):
                raise
            raise ElmokitError(
                f"the memory of {place} does not suffice; use accumulate 2 or more (the same batch in parts), fewer "
                "rows, or a smaller model or vocab_size"
            ) from error
        finally:
            if starts:
                dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def total(self, values: list[float]) -> list[float]:
        """The sums over all processes, the same on each."""
        if self.size == 1:
            return values
        sums = torch.tensor(values, dtype=torch.float64, device=self.device if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(sums)
        return [float(value) for value in sums.tolist()]

    def collect(self, tensor: Tensor, dim: int) -> Tensor:
        """The processes' tensors side by side, in the order of their ranks."""
        if self.size == 1:
            return tensor
        given = tensor.contiguous()
        if dist.get_backend() != "nccl":
            given = given.cpu()
        parts = [torch.empty_like(given) for _ in range(self.size)]
        dist.all_gather(parts, given)
        return torch.cat(parts, dim=dim).to(tensor.device)


def backend_for(place: torch.device, size: int) -> str:
    """How `size` processes talk: NCCL on GPUs, but for processes that share one, which NCCL refuses."""
    machines = int(os.environ.get("GROUP_WORLD_SIZE", size))  # torchrun says it, the same to all
    shared = place.index is not None and size > machines
    return "nccl" if place.type == "cuda" and not shared else "gloo"


def _is_memory(error: BaseException) -> bool:
    told = "can't allocate memory" in str(error) or "not enough memory" in str(error)  # the two forms on a CPU
    return told or isinstance(error, MemoryError | torch.OutOfMemoryError)


class StopSignals:
    """Notes SIGINT, SIGTERM and SIGHUP in `number` and answers with a line; the run then stops after its step.

    A second signal acts as it did before. Signals that are ignored (nohup) stay ignored.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._answered = threading.Lock()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():  # signals reach the main thread only
            numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
            self._before = {n: signal.signal(n, self) for n in numbers if signal.getsignal(n) != signal.SIG_IGN}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
            return
        self.number = number
        self.answer(number)

    def answer(self, number: int) -> None:
        """The line, once. The command line calls this from a thread while C code keeps Python from noticing."""
        if self._answered.acquire(blocking=False) and os.environ.get("RANK", "0") == "0":
            with suppress(OSError, ValueError, RuntimeError):  # standard error may be closed, or in use
                name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
                print(f"{name}: stopping after this step; again to stop at once", file=sys.stderr, flush=True)
