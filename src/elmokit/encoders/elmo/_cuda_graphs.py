"""Small batches on CUDA, replayed as graphs: a sentence of twenty words is a hundred launches of a few microseconds.

A small batch is padded to one of few shapes: rows to a power of two, steps to a multiple of eight. Padding changes no
vector. A few new words go through the token encoder in the same way. A shape is recorded when it comes for the second
time; where recording fails, everything runs without graphs from then on. ELMOKIT_GRAPHS=0 switches graphs off.
"""

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import TypeRows
from elmokit.encoders._transfers import locked
from elmokit.encoders.batches import Turn
from elmokit.errors import ConfigError, ElmokitWarning
from elmokit.kernels import fused
from elmokit.kernels.graphs import recording
from elmokit.layers import LayerStack
from elmokit.nn.bilm import BiLM
from elmokit.text import Sentence

MOST_ROWS, MOST_STEPS = 32, 64  # larger batches keep the device busy without
MIN_WORDS, MOST_WORDS = 32, 64  # new words at once; the kernels take up to 64 in the time of one
MOST_GRAPHS = 24  # the one not used for longest is dropped
Ints = NDArray[np.int64]
Key = TypeVar("Key")
Made = TypeVar("Made")


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
    wish = os.environ.get("ELMOKIT_GRAPHS", "")
    if wish not in ("", "0", "1"):
        raise ConfigError(f"ELMOKIT_GRAPHS is {wish!r}, expected '0' (off), '1' or nothing (on); unset it")
    return wish != "0"


def bucket(rows: int, steps: int) -> tuple[int, int]:
    """The shape of graph that such a batch runs in."""
    return 1 << (rows - 1).bit_length(), -(-steps // 8) * 8


def filled_words(rows: TypeRows, filling: TypeRows) -> TypeRows:
    """The rows of new words (U, W) and as many of `filling` (W,) as their graph takes beyond."""
    spare = max(MIN_WORDS, 1 << (len(rows) - 1).bit_length()) - len(rows)
    return np.concatenate([rows, np.broadcast_to(filling, (spare, len(filling)))])


def filled_layers(bilm: BiLM, vectors: Tensor, table: Tensor, rows: int, steps: int) -> Tensor:
    """All layers (L, B, T, R * P) of a filled batch, zero where it was filled up; fixed shapes, no look at the data."""
    R = len(bilm.config.directions)
    inputs, results, real = table[:R], table[R : 2 * R], table[2 * R]  # (R, N), (R, N), (N,)
    x = vectors[inputs]  # (R, N, P)
    layers, _ = bilm.run(x, (rows,) * steps, bilm.zero_state(rows, like=x))
    sides = [torch.stack([layer[r][results[r]] for layer in (x, *layers)]) for r in range(R)]  # R of (L, N, P)
    values = torch.cat(sides, dim=-1) * real[None, :, None].to(x.dtype)  # (L, N, R * P)
    return values.view(len(values), rows, steps, -1)


class Recurring(Generic[Key, Made]):
    """What was made for the keys used last. Nothing is made for a key that comes for the first time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.known: OrderedDict[Key, Made] = OrderedDict()  # oldest use first
        self.once: set[Key] = set()

    def find(self, key: Key, make: Callable[[], Made]) -> Made | None:
        if key not in self.known:
            if key not in self.once:
                self.once.add(key)
                return None
            self.known[key] = make()
            while len(self.known) > self.most:
                self.known.popitem(last=False)
        self.known.move_to_end(key)
        return self.known[key]


@dataclass(frozen=True, slots=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]  # written before each replay
    output: Tensor  # what a replay leaves


class CudaGraphs:
    """The graphs of one network on one CUDA device, recorded as shapes come along.

    `run` and `encode` give None where they have no graph, and the caller computes without. A graph has one input and
    one output, so threads take turns from filling the one to copying the other.
    """

    def __init__(self, bilm: BiLM, *, filling: TypeRows, turn: Turn | None = None) -> None:
        self.bilm = bilm
        self.device = next(bilm.tokens.parameters()).device
        self.filling = filling  # (W,) the row of a short word
        self.backward = tuple(d == "backward" for d in bilm.config.directions)
        characters = bilm.tokens.characters
        self.words = characters is None or fused(characters.weight)  # plain torch looks at lengths on its way
        self.kept: Recurring[tuple[int, ...], _Recorded] = Recurring(MOST_GRAPHS)
        self.failed = False
        self.turn = turn or Turn(self.device)
        self.pool: Any = None  # one for all: a replay's result is taken out before the next

    @staticmethod
    def take(sentences: Sequence[Sentence]) -> bool:
        """Whether a batch is small enough."""
        return 0 < len(sentences) <= MOST_ROWS and max(map(len, sentences)) + 2 <= MOST_STEPS

    def run(self, vectors: Tensor, index: Ints, lengths: Ints) -> LayerStack | None:
        """Like `BiLM.contextualise`, from zero state."""
        rows, steps = bucket(len(lengths), int(lengths.max()))

        def make() -> _Recorded:
            held = vectors.new_zeros(rows * steps + 2, vectors.shape[1])  # (2 + N, P)
            table = torch.zeros(2 * len(self.backward) + 1, rows * steps, dtype=torch.int64, device=vectors.device)
            return self._record(lambda: filled_layers(self.bilm, held, table, rows, steps), held, table)

        with self.turn:
            recorded = self._find((rows, steps), make)
            if recorded is None:
                return None
            held, table = recorded.inputs
            held[: len(vectors)].copy_(vectors)
            batch = Filled.of(index, lengths, backward=self.backward)
            table.copy_(locked(torch.from_numpy(batch.table)), non_blocking=True)
            recorded.graph.replay()
            B, T = index.shape
            values = recorded.output[:, :B, :T].clone()  # (L, B, T, D)
            mask = table[-1].view(rows, steps)[:B, :T].bool()  # (B, T)
        return LayerStack(values, mask, self.bilm.config.layer_names, bounded=True)

    def encode(self, rows: TypeRows) -> Tensor | None:
        """Like the token encoder, for a few words. (U, P)"""
        if not self.words or not 0 < len(rows) <= MOST_WORDS:
            return None
        filled = torch.from_numpy(filled_words(rows, self.filling))  # (U', W)

        def make() -> _Recorded:
            held = torch.zeros(filled.shape, dtype=filled.dtype, device=self.device)  # (U', W)
            return self._record(lambda: self.bilm.tokens(held), held)

        with self.turn:
            recorded = self._find((len(filled),), make)
            if recorded is None:
                return None
            recorded.inputs[0].copy_(locked(filled), non_blocking=True)
            recorded.graph.replay()
            return recorded.output[: len(rows)].clone()  # (U, P)

    def _find(self, key: tuple[int, ...], make: Callable[[], _Recorded]) -> _Recorded | None:
        if self.failed:
            return None
        try:
            with torch.inference_mode(False), torch.no_grad():  # so that it can be written to in any mode
                return self.kept.find(key, make)
        except RuntimeError as error:  # too little memory for one; a driver or a library that cannot
            self.failed = True
            self.kept.known.clear()
            warnings.warn(f"a CUDA graph could not be recorded, running without: {error}", ElmokitWarning, stacklevel=2)
            return None

    def _record(self, run: Callable[[], Tensor], *inputs: Tensor) -> _Recorded:
        device = inputs[0].device
        before = torch.cuda.current_stream(device)
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(before)
        try:
            with torch.cuda.stream(aside):  # kernels are compiled and libraries set up before anything is recorded
                run()
            before.wait_stream(aside)
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with recording(graph, aside, pool=self.pool):
                output = run()
        except BaseException:
            torch.cuda.set_stream(before)  # a recording that fails leaves its own stream behind
            raise
        return _Recorded(graph, inputs, output)
