"""Small batches on CUDA, replayed as graphs: a sentence of twenty words is a hundred launches, each over in a moment.

A graph has one shape, so a small batch is filled up to the next of few: rows to a power of two, steps to a multiple of
eight. Filling changes nothing: rows never meet, and in each direction a sentence is over before its filling begins.

Off unless the environment variable ELMOKIT_GRAPHS is 1, until `benchmarks/inference_gpu.py --check` passes on a GPU.
"""

import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM
from elmokit.text import Sentence

MOST_ROWS, MOST_STEPS = 32, 64  # larger batches keep the device busy without
MOST_GRAPHS = 24  # the one not used for longest is dropped
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch filled up to B rows of T steps, time-major as the recurrence takes it: step t of row b is t * B + b."""

    rows: int
    steps: int
    table: Ints  # (2 R + 1, B * T): word types in each direction; where each position's result lies; what is real

    @classmethod
    def of(cls, index: Ints, lengths: Ints, *, backward: tuple[bool, ...]) -> "Filled":
        B, T = bucket(len(lengths), int(lengths.max()))
        types = np.zeros((B, T), dtype=np.int64)
        types[: index.shape[0], : index.shape[1]] = index
        ends = np.zeros((B, 1), dtype=np.int64)
        ends[: len(lengths), 0] = lengths
        time = np.arange(T)  # (T,)
        real = time < ends  # (B, T)
        mirrored = np.where(real, ends - 1 - time, time)  # (B, T)
        row = np.arange(B)[:, None]
        inputs, results = [], []
        for turned in backward:
            at = mirrored if turned else np.broadcast_to(time, (B, T))  # (B, T), its own inverse
            inputs.append(types[row, at].T.reshape(-1))
            results.append((at * B + row).reshape(-1))
        return cls(B, T, np.stack([*inputs, *results, real.reshape(-1).astype(np.int64)]))


def wanted() -> bool:
    """Whether small batches are to be replayed."""
    return os.environ.get("ELMOKIT_GRAPHS") == "1"


def bucket(rows: int, steps: int) -> tuple[int, int]:
    """The shape of graph that such a batch runs in."""
    return 1 << (rows - 1).bit_length(), -(-steps // 8) * 8


def filled_layers(bilm: BiLM, vectors: Tensor, table: Tensor, rows: int, steps: int) -> Tensor:
    """All layers (L, B, T, R * P) of a filled batch, zero where it was filled up; fixed shapes, no look at the data."""
    R = len(bilm.config.directions)
    inputs, results, real = table[:R], table[R : 2 * R], table[2 * R]  # (R, N), (R, N), (N,)
    x = vectors[inputs]  # (R, N, P)
    layers, _ = bilm.run(x, (rows,) * steps, bilm.zero_state(rows, like=x))
    sides = [torch.stack([layer[r][results[r]] for layer in (x, *layers)]) for r in range(R)]  # R of (L, N, P)
    values = torch.cat(sides, dim=-1) * real[None, :, None].to(x.dtype)  # (L, N, R * P)
    return values.view(len(values), rows, steps, -1)


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    vectors: Tensor  # (2 + B * T, P) written before each replay
    table: Tensor  # (2 R + 1, B * T) the same
    values: Tensor  # (L, B, T, D) what a replay leaves


class Graphs:
    """The graphs of one network on one CUDA device, recorded as shapes come along."""

    def __init__(self, bilm: BiLM) -> None:
        self.bilm = bilm
        self.backward = tuple(d == "backward" for d in bilm.config.directions)
        self.known: OrderedDict[tuple[int, int], _Recorded] = OrderedDict()
        self.pool = torch.cuda.graph_pool_handle()  # one for all: a replay's result is taken out before the next

    @staticmethod
    def take(sentences: Sequence[Sentence]) -> bool:
        """Whether a batch is small enough."""
        return 0 < len(sentences) <= MOST_ROWS and max(map(len, sentences)) + 2 <= MOST_STEPS

    def run(self, vectors: Tensor, index: Ints, lengths: Ints) -> LayerStack:
        """Like `BiLM.contextualise`, from zero state."""
        batch = Filled.of(index, lengths, backward=self.backward)
        key = batch.rows, batch.steps
        table = torch.from_numpy(batch.table)
        recorded = self.known.pop(key, None) or self._record(vectors, table, *key)
        self.known[key] = recorded  # now the most recently used
        while len(self.known) > MOST_GRAPHS:
            self.known.popitem(last=False)
        recorded.vectors[: len(vectors)].copy_(vectors)
        recorded.table.copy_(table)
        recorded.graph.replay()
        B, T = index.shape
        values = recorded.values[:, :B, :T].clone()  # (L, B, T, D)
        mask = recorded.table[-1].view(key)[:B, :T].bool()  # (B, T)
        return LayerStack(values, mask, self.bilm.config.layer_names, bounded=True)

    @torch.inference_mode(False)  # so that it can be written to in any mode
    @torch.no_grad()
    def _record(self, vectors: Tensor, table: Tensor, rows: int, steps: int) -> _Recorded:
        held = vectors.new_zeros(rows * steps + 2, vectors.shape[1])  # (2 + N, P)
        placed = table.to(vectors.device)
        aside = torch.cuda.Stream(vectors.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(vectors.device))
        with torch.cuda.stream(aside):  # kernels are compiled and libraries set up before anything is recorded
            filled_layers(self.bilm, held, placed, rows, steps)
        torch.cuda.current_stream(vectors.device).wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            values = filled_layers(self.bilm, held, placed, rows, steps)
        return _Recorded(graph, held, placed, values)
