"""One optimizer step, plainly or as a captured CUDA graph; and what it reads of each word type.

On one GPU the whole step, some hundreds of small kernels, is captured once and replayed. A graph's shapes are fixed, so
the number of word types is padded up to a capacity, and a window with more types leads to a new capture.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elmokit.chars import ByteCodec, Codec, TypeRows, WordCodec
from elmokit.kernels import LstmState
from elmokit.kernels.graphs import recording
from elmokit.kernels.transfers import upload
from elmokit.nn.bilm import State
from elmokit.nn.softmax import AdaptiveSoftmax
from elmokit.pretrain.config import PretrainConfig
from elmokit.pretrain.corpus.lexicon import Lexicon
from elmokit.pretrain.objective import Inputs, Objective
from elmokit.pretrain.optimisation import build_optimizer, clipped_step, set_rate
from elmokit.pretrain.windows import BOS_ID, EOS_ID, LOWER, UPPER, Window

CAPACITY_STEP = 512  # word types are padded to a multiple of this in a captured step
ROOM, MORE_ROOM = 1.05, 1.1  # of a captured step, beside its window's word types; where the first was too small
TABLE_BYTES = 4 * 2**30  # codes of a lexicon that take more than this on a GPU are made on the host instead
_BLOCK = 2**16


class Step:
    """Runs windows through objective, backward pass, clipping and optimizer. `parts` are the windows of one batch."""

    def __init__(
        self, objective: Objective, config: PretrainConfig, codes: "TypeCodes", *, batch_rows: int, device: torch.device
    ):
        self.objective, self.config, self.codes, self.device = objective, config, codes, device
        self.optimizer = build_optimizer(config, objective, cuda=device.type == "cuda")
        self.distributed = torch.distributed.is_initialized()
        self.module: nn.Module = objective
        if self.distributed:
            # A window may have no word of one of an adaptive softmax's clusters.
            idle = isinstance(objective.softmax, AdaptiveSoftmax)
            self.module = DistributedDataParallel(objective, find_unused_parameters=idle)
            for parameter in objective.parameters():
                if parameter.requires_grad and 1 in parameter.shape:
                    parameter.register_hook(_as_laid_out(parameter))  # type: ignore[no-untyped-call]
        # Published gradients are of the sum over a window's steps; Adagrad's rate and clip belong to that scale.
        self.scale = float(config.window) if config.optimizer == "adagrad" else 1.0
        self.states: list[State] = [
            objective.zero_state(batch_rows // config.accumulate) for _ in range(config.accumulate)
        ]

    def __call__(self, parts: Sequence[Window], noise: Tensor, rate: float) -> Tensor:
        """One step; returns its mean loss and the gradient's norm, still on the device. (2,)"""
        set_rate(self.optimizer, rate)
        losses = []
        self.optimizer.zero_grad(set_to_none=True)
        for k, window in enumerate(parts):
            last = k + 1 == len(parts)
            if isinstance(self.module, DistributedDataParallel):
                self.module.require_backward_grad_sync = last
            losses.append(self._backward(self._inputs(window, noise), k) / len(parts))
        return torch.stack([torch.stack(losses).sum(), self._update()])

    def load(self, optimizer: dict[str, Any], states: list[list[LstmState]]) -> None:
        """Puts back what a checkpoint has besides the weights; `states` are those of each part's rows."""
        self.optimizer.load_state_dict(optimizer)
        self.states = [tuple(LstmState(s.h.contiguous(), s.c.contiguous()) for s in part) for part in states]

    def _inputs(self, window: Window, noise: Tensor) -> Inputs:
        types = self.codes(window.types)
        written = None
        if self.config.recase and self.objective.teacher is not None:
            written = self.codes(window.types % self.codes.words)
        which, targets, keep = (upload(array, self.device) for array in (window.which, window.targets, window.keep))
        return Inputs(types, which, targets, keep, upload(noise.numpy(), self.device), written)

    def _backward(self, inputs: Inputs, part: int) -> Tensor:
        loss, self.states[part] = self.module(inputs, self.states[part])
        (loss * (self.scale / self.config.accumulate)).backward()
        result: Tensor = loss.detach()
        return result

    def _update(self) -> Tensor:
        trained = (p for p in self.objective.parameters() if p.requires_grad)
        return clipped_step(self.optimizer, trained, self.config.clip_norm)


class CudaGraphStep(Step):
    """The same step captured as a CUDA graph; one GPU, one part per batch."""

    def __init__(
        self, objective: Objective, config: PretrainConfig, codes: "TypeCodes", *, batch_rows: int, device: torch.device
    ):
        super().__init__(objective, config, codes, batch_rows=batch_rows, device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.capacity = 0
        self.static: Inputs
        self.result: Tensor

    def __call__(self, parts: Sequence[Window], noise: Tensor, rate: float) -> Tensor:
        (window,) = parts
        if self.graph is None or len(window.types) > self.capacity:
            self._capture(window, noise)
        set_rate(self.optimizer, rate)
        self._fill(window, noise)
        assert self.graph is not None
        self.graph.replay()
        return self.result.clone()

    def load(self, optimizer: dict[str, Any], states: list[list[LstmState]]) -> None:
        super().load(optimizer, states)
        self.graph = None  # it works on the tensors that were there before

    def _fill(self, window: Window, noise: Tensor) -> None:
        fresh = self._inputs(window, noise)
        for old, new in zip(self.static, fresh, strict=True):
            if old is not None and new is not None:
                old[: len(new)].copy_(new, non_blocking=True)  # nothing points at the rest

    def _capture(self, window: Window, noise: Tensor) -> None:
        """Room for this window's word types and somewhat more; two plain steps first, undone, to warm everything up."""
        room = MORE_ROOM if self.capacity else ROOM  # windows of shuffled text are much alike
        self.capacity = -(-int(len(window.types) * room) // CAPACITY_STEP) * CAPACITY_STEP
        fresh = self._inputs(window, noise)
        types = fresh.types[:1].expand(self.capacity, -1)
        written = None if fresh.written is None else types.clone()
        self.static = fresh._replace(types=types.clone(), written=written)
        self._fill(window, noise)
        before = self._snapshot()
        self.graph = None
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self._whole()
        torch.cuda.current_stream().wait_stream(side)
        self._restore(before)
        graph = torch.cuda.CUDAGraph()
        with recording(graph, side):
            self.result = self._whole()
        self._restore(before)
        self.graph = graph

    def _whole(self) -> Tensor:
        """Everything a replay does; the carried state goes back into the tensors it came from."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, ended = self.objective(self.static, self.states[0])
        (loss * self.scale).backward()
        norm = self._update()
        for old, new in zip(self.states[0], ended, strict=True):
            old.h.copy_(new.h)
            old.c.copy_(new.c)
        return torch.stack([loss.detach(), norm])

    def _tensors(self) -> list[Tensor]:
        """What a step changes: weights, carried state, the optimizer's memory where it exists."""
        memory = [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        return [*self.objective.parameters(), *(t for s in self.states[0] for t in s), *memory]

    def _snapshot(self) -> list[Tensor]:
        if not self.optimizer.state:  # make the optimizer's memory exist, so that it can be captured and put back
            for p in self.objective.parameters():
                p.grad = torch.zeros_like(p) if p.requires_grad else None
            set_rate(self.optimizer, 0.0)
            self.optimizer.step()
            for state in self.optimizer.state.values():
                state["step"].zero_()
        return [t.detach().clone() for t in self._tensors()]

    @torch.no_grad()
    def _restore(self, before: list[Tensor]) -> None:
        for tensor, value in zip(self._tensors(), before, strict=True):
            tensor.copy_(value)


def _as_laid_out(parameter: nn.Parameter) -> Callable[[Tensor], Tensor]:
    """Gives gradients their parameter's strides. They can differ where a size is 1, of which torch warns."""
    shape, strides = parameter.shape, parameter.stride()
    return lambda grad: grad.contiguous().as_strided(shape, strides)


class TypeCodes:
    """What the token encoder reads of a lexicon's words. On a GPU, a table of all words saves sending them.

    With `recased`, each word has three forms: as written, in lower case and in capitals (see `WindowPlan.words`).
    """

    def __init__(self, lexicon: Lexicon, codec: Codec, *, device: torch.device, recased: bool = False) -> None:
        self.lexicon, self.codec, self.device = lexicon, codec, device
        self.words = len(lexicon)
        n = self.words * (3 if recased else 1)
        self.table: Tensor | None = None
        kind = torch.int16 if isinstance(codec, ByteCodec) else torch.int32  # bytes and marks are below 262
        size = kind.itemsize * codec.width * n
        # A word-level model's table is small, and looking each word up again in every step would be slow.
        if isinstance(codec, WordCodec) or (device.type == "cuda" and size <= TABLE_BYTES):
            self.table = torch.empty(n, codec.width, dtype=kind, device=device)
            for k in range(0, n, _BLOCK):
                block = np.arange(k, min(k + _BLOCK, n))
                self.table[k : k + len(block)] = torch.from_numpy(self._make(block)).to(device, kind)

    def __call__(self, types: NDArray[np.int64]) -> Tensor:
        """(U,) to (U, W) int32."""
        if self.table is not None:
            return self.table[upload(types, self.device)].int()
        return upload(self._make(types), self.device)

    def _make(self, types: NDArray[np.int64]) -> TypeRows:
        form, words = np.divmod(types, self.words)  # (U,), (U,)
        rows = self.lexicon.rows(words, self.codec)
        for number, change in ((LOWER, str.lower), (UPPER, str.upper)):
            if (here := np.flatnonzero(form == number)).size:
                rows[here] = self.codec.encode([change(word) for word in self.lexicon.words(words[here])])
        rows[types == BOS_ID], rows[types == EOS_ID] = self.codec.begin, self.codec.end  # each codec has its own
        return rows
