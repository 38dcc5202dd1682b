"""AllenNLP's `Elmo`, the module for use inside a network, and `batch_to_ids`, which makes its input."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.chars import ByteCodec
from elmokit.compat.allennlp.bilm import CharacterBiLM
from elmokit.compat.allennlp.errors import ConfigurationError
from elmokit.compat.allennlp.scalar_mix import ScalarMix
from elmokit.compat.allennlp.source import Named, load_model
from elmokit.compat.allennlp.state import CarriedState
from elmokit.layers import LayerStack

MAX_CHARACTERS = 50  # AllenNLP knew no other limit


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Token lists to character ids (B, T, 50), int64, zero at padding."""
    words: dict[str, int] = {}
    places = [[words.setdefault(word, len(words) + 1) for word in sentence] for sentence in batch]
    index = np.zeros((len(places), max(map(len, places), default=0)), dtype=np.int64)
    for row, known in zip(index, places, strict=True):
        row[: len(known)] = known
    rows = ByteCodec(MAX_CHARACTERS).encode(list(words)).astype(np.int64)  # (U, 50)
    return torch.from_numpy(np.concatenate([np.zeros((1, MAX_CHARACTERS), dtype=np.int64), rows])[index])


class Elmo(nn.Module):
    """Character ids to mixes of the biLM's layers: {"elmo_representations": [(B, T, D)] * n, "mask": (B, T) int64}.

    The biLM is frozen unless `requires_grad`. Given `scalar_mix_parameters` (before the softmax) are used as they stand
    and not trained. `module` stands in for the biLM of the two files. `options_file` and `weight_file` may be what
    `elmokit.compat.allennlp.source` tells. State is carried from call to call unless `stateful` is False.
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
            pretrained = load_model(options_file, weight_file)
            codec = pretrained.codec.build(pretrained.config.tokens.max_characters)
            bilm = copy.deepcopy(pretrained.build()).requires_grad_(requires_grad)
            self._elmo_lstm = CharacterBiLM(
                bilm, codec, CarriedState(bilm, stateful=stateful), vocab_to_cache=vocab_to_cache
            )
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
        """From a dictionary of the arguments."""
        return cls(**dict(params))

    def get_output_dim(self) -> int:
        return int(self._elmo_lstm.get_output_dim())

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Ids (..., T, 50); leading axes beyond one are kept. Word ids (..., T) are for `vocab_to_cache`."""
        leading = inputs.shape[:-2]
        flat = inputs.reshape(-1, *inputs.shape[-2:])  # (B, T, 50)
        words = None if word_inputs is None else word_inputs.reshape(-1, word_inputs.shape[-1])  # (B, T)
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
        return {"elmo_representations": outputs, "mask": mask.long().reshape(*leading, -1)}
