"""A `Pretrained` as a network that is only run, its matrices laid out for the machine that runs it.

On CUDA and in float64 that is `Pretrained.build`. On a CPU the LSTMs, the highways and the token projection multiply in
the chosen mode, int8 included, and everything between the products is float32, as are the layers that come out.
Weights stored as int8 go into int8 products as they are; into all others go the numbers of the file, widened exactly.
"""

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.kernels import Filter
from elmokit.kernels.cpu.c import CompiledTokens, c_library
from elmokit.kernels.cpu.inference import inference_lstm, inference_tokens
from elmokit.kernels.cpu.int8 import Matrix, widened
from elmokit.nn.bilm import BiLM
from elmokit.nn.char_cnn import TokenEncoder
from elmokit.nn.lstm import LstmLayer
from elmokit.weights.pretrained import Pretrained, check_tensors, outline
from elmokit.weights.storage import StoredTensors

CPU_MODES = (torch.float32, torch.bfloat16, torch.int8)


def inference_model(pretrained: Pretrained, *, device: torch.device, dtype: torch.dtype) -> BiLM:
    """Frozen, in evaluation mode, and to be run only: it has no parameters where there are products."""
    if device.type != "cpu" or dtype not in CPU_MODES:
        if dtype == torch.int8:
            raise InputError(f"int8 runs on a CPU, not on {device}; choose dtype='bfloat16', 'float16' or 'auto' there")
        return pretrained.build(device=device, dtype=dtype)
    check_tensors(pretrained.tensors, pretrained.config, pretrained.source)
    model = outline(pretrained.config)
    for k, layer in enumerate(model.lstm):
        assert isinstance(layer, LstmLayer)
        model.lstm[k] = inference_lstm(
            _matrix(pretrained, f"lstm.{k}.weight_x", dtype),
            _matrix(pretrained, f"lstm.{k}.weight_h", dtype),
            pretrained.tensors[f"lstm.{k}.bias"],
            None if layer.projection is None else _matrix(pretrained, f"lstm.{k}.projection", dtype),
            layer.config.rules,
            dtype,
        )
    if (tokens := _compiled_tokens(pretrained, model.tokens, dtype)) is not None:
        setattr(model, "tokens", tokens)  # noqa: B010 - it stands in for one
    linears = {f"{name}.weight" for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    for name, _ in list(model.named_parameters()):
        owner, _, attribute = name.rpartition(".")
        mode = dtype if name in linears else torch.float32
        known = widened(_matrix(pretrained, name, mode), mode)
        setattr(model.get_submodule(owner), attribute, nn.Parameter(known, requires_grad=False))
    return model.eval()


def _compiled_tokens(pretrained: Pretrained, encoder: TokenEncoder, dtype: torch.dtype) -> CompiledTokens | None:
    """The encoder as one call, where this machine has that."""
    config, held, spelt = encoder.config, pretrained.tensors, encoder.characters is not None

    def linear(name: str) -> tuple[Matrix, Tensor]:
        return _matrix(pretrained, f"tokens.{name}.weight", dtype), held[f"tokens.{name}.bias"]

    ready = inference_tokens(
        held["tokens.characters.weight"] if spelt else None,
        [
            Filter(*(held[f"tokens.convolutions.{k}.{part}"] for part in Filter._fields))
            for k in range(len(encoder.convolutions))
        ],
        [(linear(f"highways.{k}.transform"), linear(f"highways.{k}.gate")) for k in range(len(encoder.highways))],
        linear("projection") if config.project else None,
        pad=config.pad_id,
        mode=dtype,
        activation=config.activation,
        word_dim=config.word_dim,
    )
    if ready is not None:
        ready.words = encoder.words
        setattr(ready, "characters", encoder.characters)  # noqa: B010 - parameters say where it runs
    return ready


def usual_mode(pretrained: Pretrained, device: torch.device) -> torch.dtype:
    """As the weights are stored: int8 where they are whole numbers and C multiplies them on this CPU, else float32."""
    tensors = pretrained.tensors
    whole = isinstance(tensors, StoredTensors) and not tensors.held["lstm.0.weight_h"].is_floating_point()
    return torch.int8 if whole and device.type == "cpu" and c_library() is not None else torch.float32


def _matrix(pretrained: Pretrained, name: str, mode: torch.dtype) -> Matrix:
    """For int8 as the file has it, four bits as int8; else in floats, which is exact."""
    tensors = pretrained.tensors
    if mode == torch.int8 and isinstance(tensors, StoredTensors):
        return tensors.stored(name)
    return tensors[name]
