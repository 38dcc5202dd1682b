"""One process or many: what `torchrun` says about this one, and the few collective calls that training needs."""

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class World:
    """This process among its equals; alone, every call is a no-op."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: str | None = None) -> "World":
        """Joins the others where torchrun started several; a GPU for each where there are GPUs."""
        size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if chosen == "cuda":
            chosen = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
            torch.cuda.set_device(chosen)
        if size > 1 and not dist.is_initialized():
            backend = "nccl" if chosen.startswith("cuda") else "gloo"
            patience = timedelta(hours=12)  # the first process may prepare the corpus for long
            dist.init_process_group(backend, timeout=patience)
        return cls(rank, size, torch.device(chosen))

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

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
