"""Run as a program by test_store: embed that many lines, print the most memory the process ever held (KiB)."""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

import models
from elmokit.encoders import Elmo
from elmokit.store import StoreOptions, write_vectors


def lines(n: int) -> Iterator[list[str]]:
    for k in range(n):
        yield [f"w{k % 5003}", f"number{k}"]  # every line is another one, so the index of sentences grows too


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, n = Path(sys.argv[1]), int(sys.argv[2])
    elmo = Elmo(models.tiny().pretrained, device="cpu", cache_words=1000)
    write_vectors(elmo, lines(n), target, options=StoreOptions(batch_tokens=2048))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
