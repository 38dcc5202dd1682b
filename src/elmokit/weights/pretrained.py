"""`Pretrained`: a model as it comes off the disk, whichever tool wrote it. Readers make one, writers take one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.chars import ByteCodec, Codec, DictionaryCodec, WordCodec
from elmokit.errors import WeightsError
from elmokit.nn.bilm import BiLM, BiLMConfig


class TokenizerSpec(NamedTuple):
    """Which tokenizer a model was trained with; running it with another is refused unless asked for."""

    name: str
    version: int


class SoftmaxTensors(NamedTuple):
    """The output layer of the language model; row k belongs to word k of the vocabulary."""

    weight: Tensor  # (V, P)
    bias: Tensor  # (V,)


@dataclass(frozen=True, slots=True)
class CodecSpec:
    """How words become rows: UTF-8 bytes (official), ids of a vocabulary, or ELMoForManyLangs' dictionaries."""

    kind: Literal["bytes", "words", "dictionary"] = "bytes"
    boundary_tokens: bool = True  # bytes: a literal <S> or </S> means the sentence boundary
    words: tuple[str, ...] | None = None  # words, dictionary: in id order
    characters: tuple[str, ...] | None = None  # dictionary: in id order

    def build(self, max_characters: int) -> Codec:
        if self.kind == "bytes":
            return ByteCodec(max_characters, boundary_tokens=self.boundary_tokens)
        if self.kind == "words":
            if self.words is None:
                raise WeightsError("a word-level model needs its vocabulary; none came with it")
            return WordCodec(self.words)
        return DictionaryCodec(words=_ids(self.words), characters=_ids(self.characters), max_characters=max_characters)


def _ids(symbols: Sequence[str] | None) -> dict[str, int] | None:
    return None if symbols is None else {symbol: k for k, symbol in enumerate(symbols)}


@dataclass(frozen=True, slots=True)
class Pretrained:
    """Everything a model's files say. Tensors carry the names of `BiLM`'s state dict."""

    config: BiLMConfig
    tensors: dict[str, Tensor]
    codec: CodecSpec = field(default_factory=CodecSpec)
    tokenizer: TokenizerSpec | None = None  # None: the files do not say (older tools)
    vocabulary: tuple[str, ...] | None = None  # target words in softmax order, <S> </S> <UNK> first where the tool has them
    softmax: SoftmaxTensors | None = None
    origin: Literal["elmokit", "official", "manylangs"] = "elmokit"
    source: str = ""  # where it was read from, for messages
    extra: dict[str, Any] = field(default_factory=dict)  # what the config file said besides; kept when saved again

    def build(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> BiLM:
        """The network with these weights, frozen and in evaluation mode; tensors already right are used, not copied."""
        with torch.device("meta"):
            model = BiLM(self.config)
        for name, parameter in list(model.named_parameters()):
            owner = model.get_submodule(name.rpartition(".")[0])
            value = self.tensors[name].to(device=device, dtype=dtype)
            setattr(owner, name.rpartition(".")[2], nn.Parameter(value, requires_grad=False))
            if value.shape != parameter.shape:
                raise WeightsError(f"{self.source}: {name} is {tuple(value.shape)}, expected {tuple(parameter.shape)}")
        return model.eval()

    @classmethod
    def of(cls, model: BiLM, **fields: Any) -> "Pretrained":
        """A network's weights as they are now, ready to be written."""
        tensors = {name: value.detach() for name, value in model.state_dict().items()}
        return cls(model.config, tensors, **fields)
