"""A `Pretrained` as a network for inference alone, its matrices laid out for the machine that runs it.

On CUDA and in float64 that is `Pretrained.build`. On a CPU the LSTMs, the highways and the token projection multiply in
the mode asked for, int8 included, and everything between the products is float32; the network's layers come out as
float32. Weights stored as int8 go into int8 products as they are.
"""

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.kernels import Filter, LstmState
from elmokit.kernels.contract import PreparedRecurrence
from elmokit.kernels.cpu.c import NativeTokens
from elmokit.kernels.cpu.features import cpu_features
from elmokit.kernels.cpu.int8 import Int8Matrix, Rows
from elmokit.kernels.cpu.layout import prepare_lstm, prepare_tokens
from elmokit.kernels.cpu.products import Matrix, Product, cpu_product
from elmokit.nn.bilm import BiLM
from elmokit.nn.char_cnn import TokenEncoder
from elmokit.nn.lstm import LstmLayer
from elmokit.weights.pretrained import Pretrained, check_shapes, outline
from elmokit.weights.storage import StoredTensors

CPU_MODES = (torch.float32, torch.bfloat16, torch.int8)


class PreparedLstm(nn.Module):
    """In place of an `LstmLayer`."""

    def __init__(self, layer: PreparedRecurrence) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Tensor, state: LstmState, steps: tuple[int, ...], *, keep: Tensor | None = None
    ) -> tuple[Tensor, LstmState]:
        return self.layer(x, state, steps, keep=keep)


class PreparedLinear(nn.Module):
    """In place of an `nn.Linear`."""

    def __init__(self, product: Product, bias: Tensor) -> None:
        super().__init__()
        self.product, self.bias = product, bias.to(torch.float32)[None, None]  # (1, 1, N)

    def forward(self, x: Tensor) -> Tensor:
        return self.product.affine(x[None], self.bias)[0]


class PreparedTokens(nn.Module):
    """In place of a `TokenEncoder` of characters alone."""

    def __init__(self, encoder: NativeTokens, characters: nn.Embedding) -> None:
        super().__init__()
        self.encoder, self.characters = encoder, characters

    def forward(self, types: Tensor) -> Tensor:
        return self.encoder(types)


def prepare(pretrained: Pretrained, *, device: torch.device, dtype: torch.dtype) -> BiLM:
    """Frozen, in evaluation mode, and to be run only: it has no parameters where there are products."""
    if device.type != "cpu" or dtype not in CPU_MODES:
        if dtype == torch.int8:
            raise InputError(f"int8 runs on a CPU, not on {device}; choose dtype='bfloat16', 'float16' or 'auto' there")
        return pretrained.build(device=device, dtype=dtype)
    check_shapes(pretrained.tensors, pretrained.config, pretrained.source)
    model = outline(pretrained.config)
    for k, layer in enumerate(model.lstm):
        assert isinstance(layer, LstmLayer)
        ready = prepare_lstm(
            _sides(pretrained, f"lstm.{k}.weight_x"),
            _sides(pretrained, f"lstm.{k}.weight_h"),
            pretrained.tensors[f"lstm.{k}.bias"],
            None if layer.projection is None else _sides(pretrained, f"lstm.{k}.projection"),
            layer.config.rules,
            dtype,
        )
        model.lstm[k] = PreparedLstm(ready)
    if (tokens := _native_tokens(pretrained, model.tokens, dtype)) is not None:
        setattr(model, "tokens", tokens)  # noqa: B010 - it stands in for one
    elif dtype != torch.float32:
        _prepare_linears(pretrained, model.tokens, dtype)
    for name, _ in list(model.named_parameters()):
        owner, _, attribute = name.rpartition(".")
        value = pretrained.tensors[name].float()
        setattr(model.get_submodule(owner), attribute, nn.Parameter(value, requires_grad=False))
    return model.eval()


def _prepare_linears(pretrained: Pretrained, encoder: TokenEncoder, dtype: torch.dtype) -> None:
    tokens = encoder.config
    for name in [n for n, m in encoder.named_modules() if isinstance(m, nn.Linear)]:
        words = tokens.word_dim > 0 and name == "projection"  # they stand beside the features, with a sign
        rows: Rows = "positive" if tokens.activation == "relu" and not words else "spiky"
        product = cpu_product([_stored(pretrained, f"tokens.{name}.weight")], dtype, rows=rows)
        owner, _, attribute = name.rpartition(".")
        ready = PreparedLinear(product, pretrained.tensors[f"tokens.{name}.bias"])
        setattr(encoder.get_submodule(owner), attribute, ready)


def _native_tokens(pretrained: Pretrained, encoder: TokenEncoder, dtype: torch.dtype) -> PreparedTokens | None:
    """The encoder as one call, where it reads characters alone and this machine has that."""
    config, held = encoder.config, pretrained.tensors
    if encoder.characters is None or config.word_dim or config.activation != "relu":
        return None

    def linear(name: str) -> tuple[Matrix, Tensor]:
        return _stored(pretrained, f"tokens.{name}.weight"), held[f"tokens.{name}.bias"]

    ready = prepare_tokens(
        held["tokens.characters.weight"],
        [
            Filter(*(held[f"tokens.convolutions.{k}.{part}"] for part in Filter._fields))
            for k in range(len(config.filters))
        ],
        [(linear(f"highways.{k}.transform"), linear(f"highways.{k}.gate")) for k in range(config.n_highway)],
        linear("projection") if config.project else None,
        pad=config.pad_id,
        mode=dtype,
    )
    return None if ready is None else PreparedTokens(ready, encoder.characters)


def usual_mode(pretrained: Pretrained, device: torch.device) -> torch.dtype:
    """As the weights are stored: int8 where they are and the CPU has a library that multiplies it, else float32."""
    tensors = pretrained.tensors
    whole = isinstance(tensors, StoredTensors) and not tensors.held["lstm.0.weight_h"].is_floating_point()
    return torch.int8 if whole and device.type == "cpu" and cpu_features().onednn else torch.float32


def _sides(pretrained: Pretrained, name: str) -> list[Matrix]:
    """A matrix for each direction."""
    held = _stored(pretrained, name)
    if isinstance(held, Tensor):
        return list(held)
    return [Int8Matrix(values, scale) for values, scale in zip(*held, strict=True)]


def _stored(pretrained: Pretrained, name: str) -> Matrix:
    tensors = pretrained.tensors
    return tensors.stored(name) if isinstance(tensors, StoredTensors) else tensors[name]
