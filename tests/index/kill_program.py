"""Run as a program by test_kills: kills its own forked children with SIGKILL, over and over, while an index grows.

A child is killed while it writes a file, or at any moment after it has finished one. After every kill the index is
opened and searched. Prints a JSON line with what was seen; the index stays, to be compared with an undisturbed one.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import models
from elmokit.encoders import Elmo
from elmokit.index import Index, IndexSettings, growth
from elmokit.text import Sentence

SENTENCES, KILLS = 400, 7


def sentences() -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [[f"w{k}" for k in rng.integers(0, 300, rng.integers(1, 12))] for _ in range(SENTENCES)]


def build(folder: Path) -> Index:
    growth.CHUNK_TOKENS, growth.SEGMENT_ROWS = 64, 100
    elmo, kept = Elmo(models.tiny().pretrained, device="cpu"), IndexSettings(keep=("number",))
    given = [Sentence(tuple(words), fields=(str(k // 3),)) for k, words in enumerate(sentences())]
    return Index.build(elmo, given, folder, name="text", settings=kept)


def build_and_join(folder: Path) -> None:
    build(folder).make_graph(threads=1)


def kill(work: Callable[[Path], object], folder: Path, *, pattern: str, wait: float) -> None:
    """Run the work in a child, and kill it some time after a new file of that pattern has appeared."""
    before = set(folder.glob(pattern))
    child = os.fork()
    if not child:
        work(folder)
        os._exit(0)
    while not set(folder.glob(pattern)) - before and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.0002)
    time.sleep(wait)
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it was done


def look(folder: Path) -> int:
    """How many rows there are; a row must find itself, in whatever state the index is."""
    if not (folder / "index.json").exists():
        return 0
    index = Index.open(folder)
    if len(index):
        found = index.search(index.vectors([0, len(index) - 1]), k=1)
        assert np.allclose(found.scores, 1, atol=1e-4), found
    return len(index)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, chance = Path(sys.argv[1]), random.Random(0)
    rows = []
    for number in range(KILLS):
        pattern = "segment-*" if number % 2 else ".*.tmp"
        kill(build, target, pattern=pattern, wait=chance.uniform(0, 0.02) if number % 2 else 0)
        rows.append(look(target))
    build(target)
    whole = look(target)
    for pattern in (".graph*.tmp", "graph-*", "graph.json"):
        kill(build_and_join, target, pattern=pattern, wait=0)
        assert look(target) == whole
    build_and_join(target)
    print(json.dumps({"rows": rows, "whole": look(target)}))
