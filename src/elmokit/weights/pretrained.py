"""`Pretrained`: a model as it comes off the disk, whichever tool wrote it. Readers make one, writers take one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmokit.chars import BOS, EOS, UNK, CodecSpec
from elmokit.errors import WeightsError
from elmokit.kernels.cpu.int8 import as_floats
from elmokit.nn.bilm import BiLM
from elmokit.nn.softmax import AdaptiveSoftmax, Softmax
from elmokit.shape import BiLMConfig
from elmokit.shape import parameter_shapes as parameter_shapes
from elmokit.weights.described import Format as Format
from elmokit.weights.described import TokenizerSpec as TokenizerSpec
from elmokit.weights.described import check_codec as check_codec
from elmokit.weights.described import check_range, check_shapes
from elmokit.weights.described import choose_tokenizer as choose_tokenizer
from elmokit.weights.storage import StoredTensors

FEW = 1 << 20  # numbers that are not worth torch's threads


class SoftmaxTensors(NamedTuple):
    """The output layer of the language model; row k belongs to word k of the vocabulary."""

    weight: Tensor  # (V, P)
    bias: Tensor  # (V,)

    @property
    def words(self) -> int:
        return len(self.bias)

    @property
    def named(self) -> dict[str, Tensor]:
        """By the names of `Softmax`'s parameters."""
        return self._asdict()

    def clone(self) -> "SoftmaxTensors":
        return SoftmaxTensors(self.weight.clone(), self.bias.clone())

    def build(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> Softmax:
        """The output layer with these weights, frozen; its bias is float32 in any case."""
        with torch.device("meta"):
            layer = Softmax(*self.weight.shape)
        layer.weight = nn.Parameter(self.weight.to(device=device, dtype=dtype), requires_grad=False)  # (V, P)
        layer.bias = nn.Parameter(self.bias.to(device=device, dtype=torch.float32), requires_grad=False)  # (V,)
        return layer


class StoredSoftmax(SoftmaxTensors):
    """The same from a file. Its weight becomes floats when it is first asked for: vectors need none of it."""

    _stored: StoredTensors
    _name: str

    @classmethod
    def of(cls, stored: StoredTensors, prefix: str) -> "StoredSoftmax":
        made = cls(torch.empty(0), stored[f"{prefix}bias"])
        made._stored, made._name = stored, f"{prefix}weight"
        return made

    @cached_property
    def weight(self) -> Tensor:
        return self._stored[self._name]

    @property
    def named(self) -> dict[str, Tensor]:
        return {"weight": self.weight, "bias": self.bias}

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.weight, self.bias))

    def __reduce__(self) -> tuple[Any, ...]:
        return SoftmaxTensors, (self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class AdaptiveTensors:
    """The same for an adaptive softmax: frequent words in full, clusters of rarer ones from each cutoff on."""

    words: int
    width: int
    cutoffs: tuple[int, ...]
    named: dict[str, Tensor]  # by the names of `AdaptiveSoftmax`'s parameters

    def clone(self) -> "AdaptiveTensors":
        return replace(self, named={name: values.clone() for name, values in self.named.items()})

    def build(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> AdaptiveSoftmax:
        """The output layer with these weights, frozen. It computes in float32, whatever the type of the rest."""
        layer = outline_adaptive(self.words, self.width, self.cutoffs)
        placed = {name: values.to(device=device, dtype=torch.float32) for name, values in self.named.items()}
        layer.load_state_dict(placed, assign=True)
        return layer.requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Everything a model's files say. Tensors carry the names of `BiLM`'s state dict."""

    config: BiLMConfig
    tensors: Mapping[str, Tensor]
    codec: CodecSpec = field(default_factory=CodecSpec)
    tokenizer: TokenizerSpec | None = None  # None: the files do not say (older tools)
    vocabulary: Sequence[str] | None = None  # target words in softmax order; read from the disk when asked for
    softmax: SoftmaxTensors | AdaptiveTensors | None = None
    origin: Format = "elmokit"  # the tool whose files it first came from
    format: Format | None = None  # the files it was read from now; None: made in memory
    stored: str | None = None  # the type of the numbers in those files, where the tensors no longer show it
    source: str = ""  # where it was read from, for messages
    extra: dict[str, Any] = field(default_factory=dict)  # what the config file said besides; kept when saved again

    @property
    def packed_as(self) -> Literal["int8", "int4"] | None:
        """What the numbers were packed into in the files, where they still are those of the files."""
        return self.stored if self.stored in ("int8", "int4") else None  # type: ignore[return-value]

    def build(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> BiLM:
        """The network with these weights, frozen and in evaluation mode; tensors already right are used, not copied."""
        check_tensors(self.tensors, self.config, self.source)
        model = outline(self.config)
        for name, _ in list(model.named_parameters()):
            owner, _, attribute = name.rpartition(".")
            value = self.tensors[name].to(device=device, dtype=dtype)
            setattr(model.get_submodule(owner), attribute, nn.Parameter(value, requires_grad=False))
        return model.eval()

    def with_words(self, most: int) -> "Pretrained":
        """The same model predicting its first `most` words only: the most frequent, as vocabularies are made."""
        source = self.source or "the model"
        if not isinstance(self.softmax, SoftmaxTensors) or self.vocabulary is None:
            raise WeightsError(f"{source}: has no plain softmax with its words, so there is nothing to cut")
        if self.codec.kind == "words":
            raise WeightsError(f"{source}: reads the words that it predicts, so none can be left out")
        kept = self.vocabulary[:most]
        if absent := [mark for mark in (BOS, EOS, UNK) if mark not in kept]:
            raise WeightsError(f"{source}: its first {most} words lack {' '.join(absent)}; keep more of them")
        cut = SoftmaxTensors(self.softmax.weight[:most].clone(), self.softmax.bias[:most].clone())
        return replace(self, vocabulary=kept, softmax=cut)

    @classmethod
    def of(cls, model: BiLM, **fields: Any) -> "Pretrained":
        """A network's weights as they are now, ready to be written."""
        tensors = {name: value.detach() for name, value in model.state_dict().items()}
        return cls(model.config, tensors, **fields)


class Unfilled(TorchFunctionMode):
    """Layers without their random start. Drawing it for an outline would import torch's compiler, for seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def outline(config: BiLMConfig) -> BiLM:
    """The network with parameters that have shapes but no memory."""
    with torch.device("meta"), Unfilled():
        return BiLM(config)


def outline_adaptive(words: int, width: int, cutoffs: tuple[int, ...]) -> AdaptiveSoftmax:
    """The same for an adaptive softmax; cutoffs that do not fit are refused."""
    if not cutoffs or list(cutoffs) != sorted(set(cutoffs)) or cutoffs[0] < 1 or cutoffs[-1] >= words:
        raise WeightsError(f"cutoffs {cutoffs} of an adaptive softmax, expected ascending ones below {words} words")
    with torch.device("meta"), Unfilled():
        return AdaptiveSoftmax(words, width, cutoffs=cutoffs)


def check_tensors(tensors: Mapping[str, Tensor], config: BiLMConfig, source: str) -> None:
    """Refuses tensors that are not exactly those of the config."""
    if isinstance(tensors, StoredTensors):
        shapes = {name: tensors.shape(name) for name in tensors}
    else:
        shapes = {name: tuple(values.shape) for name, values in tensors.items()}
    check_shapes(shapes, config, source)


def check_numbers(values: Tensor, what: str) -> None:
    """Refuses NaN, infinity and magnitudes that no training leads to, in one pass without a copy."""
    if values.numel() > FEW:
        low, high = (float(end) for end in torch.aminmax(values))
    else:
        numbers = as_floats(values) if values.dtype != torch.float64 else values.numpy()
        low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
    check_range(low, high, lambda: (int((~torch.isfinite(values)).sum()), values.numel()), what)
