"""The training loss of a window: forward and backward language models jointly (Peters et al. 2018, section 3.1).

The mean of both directions' losses; token encoder and softmax shared, LSTMs separate. Parameters stay float32; a
half-precision run casts them anew in every step, so that each step's small updates are not lost.
"""

import copy
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.kernels import fused_step
from elmokit.nn.bilm import BiLM, BiLMConfig, State, initialise
from elmokit.nn.sampling import LogUniformSampler
from elmokit.nn.softmax import AdaptiveSoftmax, Softmax, SoftmaxConfig, build_softmax
from elmokit.pretrain.rounding import Rounding, check_rounding, round_
from elmokit.pretrain.teacher import Comparison, Teacher


class Inputs(NamedTuple):
    """A window on the device."""

    types: Tensor  # (U, W) rows of the word types
    which: Tensor  # (R, N) into types
    targets: Tensor  # (R, N)
    keep: Tensor  # (N,)
    noise: Tensor  # uniform numbers for the negatives
    written: Tensor | None = None  # (U, W) rows of the word types as they are written, if `types` has others too


class _Gather(torch.autograd.Function):
    """vectors (U, P)[which]; the gradient is summed in float32 and, unlike plain indexing's, without sorting."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, which: Tensor) -> Tensor:
        ctx.save_for_backward(which)
        ctx.fused = fused_step(vectors)
        ctx.like = vectors.shape, vectors.dtype
        return vectors[which]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (which,) = ctx.saved_tensors
        shape, dtype = ctx.like
        total = torch.zeros(shape, dtype=torch.promote_types(dtype, torch.float32), device=grad.device)
        if ctx.fused:
            from elmokit.kernels.triton.pointwise import add_rows_

            add_rows_(total, which.flatten(), grad.flatten(0, -2))
        else:
            total.index_add_(0, which.flatten(), grad.flatten(0, -2).to(total.dtype))
        return total.to(dtype), None


class _Cast(torch.autograd.Function):
    """Tensors in another type, all in one kernel on a GPU; and their gradients back."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.own = tensors[0].dtype
        ctx.set_materialize_grads(False)
        return tuple(_converted([t.detach() for t in tensors], dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        given = {k: g for k, g in enumerate(grads) if g is not None and g.is_contiguous()}
        back = dict(zip(given, _converted(list(given.values()), ctx.own), strict=True))
        return None, *(back[k] if k in back else g if g is None else g.to(ctx.own) for k, g in enumerate(grads))


def _converted(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    made = [torch.empty_like(t, dtype=dtype) for t in tensors]
    if made:
        torch._foreach_copy_(made, tensors)
    return made


class _Windows(nn.Module):
    """The biLM over packed windows; a module of its own so that it can be called with cast parameters."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.bilm = bilm

    def forward(
        self, types: Tensor, which: Tensor, keep: Tensor, state: State, rows: int
    ) -> tuple[list[Tensor], State]:
        """All layers, token vectors first, each (R, N, P); and the state after the window."""
        x = _Gather.apply(self.bilm.tokens(types), which)  # type: ignore[no-untyped-call]  # (R, N, P)
        steps = (rows,) * (which.shape[1] // rows)
        layers, ended = self.bilm.run(x, steps, state, keep=keep.to(x.dtype).expand(len(x), -1))
        return [x, *layers], ended


class Objective(nn.Module):
    """biLM and softmax with the loss that trains them."""

    def __init__(
        self,
        config: BiLMConfig,
        output: SoftmaxConfig,
        vocabulary: int,
        *,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        teacher: Teacher | None = None,
        distil: float = 10.0,
        stored_as: Literal["float", "int4"] = "float",
    ) -> None:
        super().__init__()
        self.dtype, self.vocabulary = dtype, vocabulary
        self.teacher, self.distil = teacher, distil
        self.comparison = Comparison(config, teacher.config) if teacher is not None else None
        self.windows = _Windows(BiLM(config, dropout=dropout))
        self.softmax: Softmax | AdaptiveSoftmax = build_softmax(output, vocabulary, config.lstm.projection_dim)
        self.sampler: LogUniformSampler | None = None
        if output.kind == "sampled" and output.samples < vocabulary:  # with fewer words than negatives, all are scored
            self.sampler = LogUniformSampler(vocabulary, output.samples, sampling=output.sampling, device=device)
        self.rounding: Rounding | None = None
        if stored_as == "int4":
            check_rounding(config, output)
            self.rounding = Rounding({"windows": self.windows, "softmax": self.softmax})
        self.to(device)

    @property
    def bilm(self) -> BiLM:
        return self.windows.bilm

    def initialise(self, seed: int) -> None:
        initialise(self.bilm, seed=seed)
        initialise_softmax(self.softmax, seed=seed + 1)

    def choose_scales(self) -> None:
        """In training for four bits: the scales that fit the weights as they are now."""
        if self.rounding is not None:
            self.rounding.choose({"windows": self.windows, "softmax": self.softmax})

    def finished(self) -> tuple[BiLM, Softmax | AdaptiveSoftmax]:
        """biLM and softmax as they are to be used: those that are trained, or, for four bits, rounded copies."""
        if self.rounding is None:
            return self.bilm, self.softmax
        copies = copy.deepcopy(self.bilm), copy.deepcopy(self.softmax)
        for part in copies:
            round_(part)
        return copies

    def noise_shape(self) -> tuple[int, ...]:
        return self.sampler.noise() if self.sampler is not None else (1,)

    def zero_state(self, rows: int) -> State:
        like = torch.empty(0, dtype=self.dtype, device=next(self.parameters()).device)
        own = self.bilm.zero_state(rows, like=like)
        return own if self.teacher is None else (*own, *self.teacher.bilm.zero_state(rows, like=like))

    def forward(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """The mean loss in nats over both directions, and the state to carry on with (no gradient flows through it).

        With a teacher, the distance to its layers is added. The carried state then holds the teacher's after the own.
        """
        rounding = self.rounding
        used = {n: p if rounding is None else rounding(f"windows.{n}", p) for n, p in self.windows.named_parameters()}
        if all(p.dtype != self.dtype and p.requires_grad and fused_step(p) for p in used.values()):
            values = _Cast.apply(self.dtype, *used.values())  # type: ignore[no-untyped-call]
            cast = dict(zip(used, values, strict=True))
        else:
            cast = {name: values.to(self.dtype) for name, values in used.items()}
        own, theirs = state[: len(self.bilm.lstm)], state[len(self.bilm.lstm) :]
        window = (inputs.types, inputs.which, inputs.keep)
        layers, ended = torch.func.functional_call(self.windows, cast, (*window, own, own[0].h.shape[1]))
        negatives = None if self.sampler is None else self.sampler.draw(inputs.noise)
        top, targets = layers[-1].flatten(0, 1), inputs.targets.flatten()
        if rounding is not None and isinstance(self.softmax, Softmax):
            rows = rounding("softmax.weight", self.softmax.weight)
            loss = self.softmax.loss(top, targets, negatives, weight=rows)
        else:
            loss = self.softmax.loss(top, targets, negatives)
        if self.teacher is not None and self.comparison is not None:
            # The teacher reads the text as it is written, whatever form the learner gets.
            given = inputs.types if inputs.written is None else inputs.written
            wanted, carried = self.teacher.layers(given, *window[1:], theirs, own[0].h.shape[1])
            loss, ended = loss + self.distil * self.comparison(layers, wanted), (*ended, *carried)
        return loss, tuple(type(s)(s.h.detach(), s.c.detach()) for s in ended)


@torch.no_grad()
def initialise_softmax(softmax: Softmax | AdaptiveSoftmax, *, seed: int) -> None:
    """N(0, 1/sqrt(width)) for matrices, 0 for biases."""
    source = torch.Generator().manual_seed(seed)
    for parameter in softmax.parameters():
        if parameter.ndim < 2:
            parameter.zero_()
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=source) * parameter.shape[1] ** -0.5)
