"""One process or many: what `torchrun` says about this one, and the few collective calls that training needs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from elmokit.encoders.places import pick_device


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

        Afterwards random numbers, the current GPU and the process group are what they were before.
        """
        size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        place = pick_device(device or "auto")
        cuda = place.type == "cuda"
        if place == torch.device("cuda"):
            place = pick_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        starts = size > 1 and not dist.is_initialized()
        if starts:
            patience = timedelta(hours=12)  # the first process may prepare the corpus for long
            dist.init_process_group("nccl" if cuda else "gloo", timeout=patience)
        try:
            current = torch.cuda.device(place) if cuda else nullcontext()
            with current, torch.random.fork_rng(devices=[place] if cuda else []):
                yield cls(rank, size, place)
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
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return [float(value) for value in sums.tolist()]

    def collect(self, tensor: Tensor, dim: int) -> Tensor:
        """The processes' tensors side by side, in the order of their ranks."""
        if self.size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts, dim=dim)
