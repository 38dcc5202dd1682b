"""AllenNLP's modules for use inside a network: `Elmo`, `ElmoTokenEmbedder`, `ScalarMix`, and `batch_to_ids`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.chars import ByteCodec
from elmokit.compat.allennlp.bilm import _ElmoBiLm
from elmokit.compat.allennlp.indexer import MAX_CHARACTERS
from elmokit.compat.allennlp.source import ConfigurationError, Named, read_params
from elmokit.formats.given import token_sentence
from elmokit.layers import LayerStack
from elmokit.nn.mix import LAYER_NORM_EPSILON

PARAMS: dict[str, Any] = {
    "options_file": str, "weight_file": str, "num_output_representations": int, "requires_grad": bool,
    "do_layer_norm": bool, "dropout": float, "vocab_to_cache": list, "keep_sentence_boundaries": bool,
    "scalar_mix_parameters": float,
}  # fmt: skip


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Token lists to character ids (B, T, 50), int64, zero at padding."""
    words: dict[str, int] = {}
    sentences = [token_sentence(tokens, k).tokens for k, tokens in enumerate(batch)]
    places = [[words.setdefault(word, len(words) + 1) for word in tokens] for tokens in sentences]
    index = np.zeros((len(places), max(map(len, places), default=0)), dtype=np.int64)
    for row, known in zip(index, places, strict=True):
        row[: len(known)] = known
    rows = ByteCodec(MAX_CHARACTERS).encode(list(words)).astype(np.int64)  # (U, 50)
    return torch.from_numpy(np.concatenate([np.zeros((1, MAX_CHARACTERS), dtype=np.int64), rows])[index])


class Elmo(nn.Module):
    """Character ids to mixes of the biLM's layers: {"elmo_representations": [(B, T, D)] * n, "mask": (B, T) int64}.

    The biLM is frozen unless `requires_grad`. Given `scalar_mix_parameters` (before the softmax) are used as they stand
    and not trained. `module` replaces the biLM of the two files. `options_file` and `weight_file` may be what
    `ElmoEmbedder` takes. State is carried from call to call unless `stateful` is False.
    """

    def __init__(
        self,
        options_file: Named,
        weight_file: Named,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if module is not None and (options_file is not None or weight_file is not None):
            raise ConfigurationError("Don't provide options_file or weight_file with module")
        self._elmo_lstm: Any = module
        if module is None:
            self._elmo_lstm = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache, stateful=stateful)
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(p=dropout)
        self._scalar_mixes = [
            ScalarMix(
                self._elmo_lstm.num_layers,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            for _ in range(num_output_representations)
        ]
        for k, mix in enumerate(self._scalar_mixes):
            self.add_module(f"scalar_mix_{k}", mix)

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "Elmo":
        """From a dictionary of the arguments, or AllenNLP's Params; numbers may be strings."""
        return cls(**{"num_output_representations": 1, **read_params(params, PARAMS)})

    def get_output_dim(self) -> int:
        return int(self._elmo_lstm.get_output_dim())

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Ids (..., T, 50); leading axes beyond one are kept.

        Word ids (..., T) are for `vocab_to_cache`; they may then stand for the character ids, too.
        """
        if word_inputs is None and self._has_cached_vocab and inputs.dim() == 2:
            word_inputs = inputs
        per_token = 0 if word_inputs is not None and inputs.shape == word_inputs.shape else 1
        leading = inputs.shape[: inputs.dim() - 1 - per_token]
        flat = inputs.reshape(math.prod(leading), *inputs.shape[len(leading) :])  # (B, T, 50) or (B, T)
        words = None if word_inputs is None else word_inputs.reshape(len(flat), word_inputs.shape[-1])  # (B, T)
        found = self._elmo_lstm(flat, words)
        stack = LayerStack(
            torch.stack(found["activations"]), found["mask"].bool(), ("",) * len(found["activations"]), True
        )
        mask = stack.mask if self._keep_sentence_boundaries else stack.inner().mask  # (B, T)
        outputs = []
        for mix in self._scalar_mixes:
            mixed = mix(list(stack.values), stack.mask)  # (B, T + 2, D)
            if not self._keep_sentence_boundaries:
                mixed = LayerStack(mixed[None], stack.mask, ("mix",), bounded=True).inner().values[0]  # (B, T, D)
            outputs.append(self._dropout(mixed).reshape(*leading, *mixed.shape[1:]))
        return {"elmo_representations": outputs, "mask": mask.long().reshape(*leading, mask.shape[-1])}


class ElmoTokenEmbedder(nn.Module):
    """Character ids (..., T, 50) to vectors (..., T, D), or (..., T, projection_dim)."""

    def __init__(
        self,
        options_file: Named,
        weight_file: Named,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        width = self._elmo.get_output_dim()
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or width

    @classmethod
    def from_params(cls, vocab: Any = None, params: Mapping[str, Any] | None = None) -> "ElmoTokenEmbedder":
        """From a dictionary of the arguments, or AllenNLP's Params; numbers may be strings.

        `namespace_to_cache` names the words of the vocabulary that go to `vocab_to_cache`.
        """
        if params is None:  # called with one argument
            vocab, params = None, vocab
        given = read_params(params or {}, PARAMS | {"namespace_to_cache": str, "projection_dim": int})
        if namespace := given.pop("namespace_to_cache", None):
            if vocab is None:
                raise ConfigurationError(f"namespace_to_cache is {namespace!r}, but there is no vocabulary")
            given["vocab_to_cache"] = list(vocab.get_token_to_index_vocabulary(namespace))
        return cls(**given)

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        vectors: Tensor = self._elmo(inputs, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)


class ScalarMix(nn.Module):
    """gamma * sum_k softmax(w)_k * tensor_k, the w and gamma trained unless `trainable` is False."""

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        start = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(start) != mixture_size:
            raise ConfigurationError(
                f"Length of initial_scalar_parameters {start} differs from mixture_size {mixture_size}"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(w)]), requires_grad=trainable) for w in start
        )
        self.gamma = nn.Parameter(torch.tensor([1.0]), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Tensors of one shape, (B, T, D) for layer norm, which needs the mask (B, T); else the mask is unused."""
        if len(tensors) != self.mixture_size:
            raise ConfigurationError(
                f"{len(tensors)} tensors were passed, but the module was initialized to mix {self.mixture_size} "
                f"tensors."
            )
        shares = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)  # (L,)
        values = torch.stack(list(tensors))  # (L, ...)
        if self.do_layer_norm:
            if mask is None:
                raise ConfigurationError("a ScalarMix with do_layer_norm needs the mask of real positions; got None")
            values = _normalise(values, mask)
        return self.gamma * torch.einsum("l,l...->...", shares.to(values.dtype), values)


def _normalise(values: Tensor, mask: Tensor) -> Tensor:
    """Each layer by its mean and variance over all unmasked numbers. Padding is scaled along, as it was there."""
    real = mask[None, ..., None].to(values.dtype)  # (1, B, T, 1)
    count = real.sum() * values.shape[-1]
    mean = (values * real).sum(dim=(1, 2, 3), keepdim=True) / count  # (L, 1, 1, 1)
    variance = ((values - mean) * real).square().sum(dim=(1, 2, 3), keepdim=True) / count
    return (values - mean) / (variance + LAYER_NORM_EPSILON).sqrt()
