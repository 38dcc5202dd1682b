"""The biLM over character ids, as AllenNLP's `Elmo` and `ElmoEmbedder.elmo_bilm` held it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.chars import N_BYTE_IDS, ByteCodec, Codec
from elmokit.compat.allennlp.checkpoint import translate
from elmokit.compat.allennlp.errors import ConfigurationError
from elmokit.compat.allennlp.state import CarriedState
from elmokit.nn.bilm import BiLM

Ints = NDArray[np.int64]
WORDS_AT_ONCE = 4096


class CharacterBiLM(nn.Module):
    """Character ids (B, T, C) to {"activations": [(B, T + 2, D)] * L, "mask": (B, T + 2) int64}, boundaries in it.

    Each distinct word of a batch is encoded once. With `vocab_to_cache` and a frozen model, word ids take their vectors
    from a table made once for the whole list; word 0 is padding.
    """

    def __init__(
        self, bilm: BiLM, codec: Codec, carried: CarriedState, *, vocab_to_cache: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if not isinstance(codec, ByteCodec):
            raise ConfigurationError(
                "this model has no character ids of AllenNLP's kind; use ElmoEmbedder, which takes tokens, or "
                "elmokit.encoders.ElmoEmbedding"
            )
        self.bilm, self.codec = bilm, codec
        self._elmo_lstm = carried
        self._vocabulary = list(vocab_to_cache or ())
        self._table: Tensor | None = None  # (2 + V, P), boundaries first
        self.register_load_state_dict_pre_hook(_load_either_naming)  # type: ignore[no-untyped-call]

    @property
    def num_layers(self) -> int:
        """Layers that come out, the token layer included."""
        return self.bilm.config.depth

    def get_output_dim(self) -> int:
        return self.bilm.config.width

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        weight = next(self.bilm.parameters())
        trained = any(p.requires_grad for p in self.bilm.parameters())
        if trained:
            self._table = None  # it would hold the vectors of weights that have changed since
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            if word_inputs is not None and not trained and self._knows(word_inputs):
                words: Ints = word_inputs.cpu().numpy()
                index, lengths = _between_boundaries(words + 2, words > 0)
                vectors = self._cached(weight)
            else:
                types, index, lengths = self._distinct(inputs)
                vectors = self.bilm.tokens(torch.from_numpy(types).to(weight.device))  # (U, P)
            places = torch.from_numpy(index).to(weight.device)
            stack = self._elmo_lstm.through(
                len(lengths), lambda state: self.bilm.contextualise(vectors, places, lengths, state=state)
            )
        missing = inputs.shape[1] + 2 - index.shape[1]  # columns of padding that no sentence reaches
        values = nn.functional.pad(stack.values, (0, 0, 0, missing))  # (L, B, T + 2, D)
        return {"activations": list(values), "mask": nn.functional.pad(stack.mask, (0, missing)).long()}

    def _distinct(self, inputs: Tensor) -> tuple[NDArray[np.int32], Ints, Ints]:
        """The rows of the distinct words, the boundaries first; which stands where; the lengths with boundaries."""
        ids: Ints = inputs.detach().cpu().numpy()  # (B, T, C)
        if ids.ndim != 3 or ids.shape[-1] != self.codec.width:
            raise ConfigurationError(
                f"character ids of shape {ids.shape}, expected (sentences, tokens, {self.codec.width}): this model's "
                f"words have at most {self.codec.width - 2} characters, and batch_to_ids makes rows of 50"
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < N_BYTE_IDS:
            raise ConfigurationError(f"character ids from {ids.min()} to {ids.max()}, expected 0 to {N_BYTE_IDS - 1}")
        real = np.asarray((ids > 0).any(axis=-1))  # (B, T)
        rows, inverse = np.unique(ids[real], axis=0, return_inverse=True)
        words = np.zeros(real.shape, dtype=np.int64)
        words[real] = inverse.reshape(-1) + 2
        types = np.concatenate([self.codec.begin[None], self.codec.end[None], rows.astype(np.int32)])  # (U, C)
        return types, *_between_boundaries(words, real)

    def _knows(self, word_inputs: Tensor) -> bool:
        return bool(self._vocabulary) and (word_inputs.numel() == 0 or int(word_inputs.max()) < len(self._vocabulary))

    def _cached(self, weight: Tensor) -> Tensor:
        table = self._table
        if table is None or (table.device, table.dtype) != (weight.device, weight.dtype):
            rows = [self.codec.begin[None], self.codec.end[None], self.codec.encode(self._vocabulary)]
            parts = torch.split(torch.from_numpy(np.concatenate(rows)).to(weight.device), WORDS_AT_ONCE)
            self._table = table = torch.cat([self.bilm.tokens(part) for part in parts])  # (2 + V, P)
        return table


def _between_boundaries(words: Ints, real: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Words (B, T), numbered from 2, to an index (B, longest + 2) with boundaries, and lengths with them."""
    lengths = real.sum(axis=1)
    T = int(lengths.max(initial=0))
    if not np.array_equal(real, np.arange(real.shape[1]) < lengths[:, None]):
        raise ConfigurationError("a sentence has padding between its words; words come first, then padding")
    index = np.zeros((len(words), T + 2), dtype=np.int64)
    index[:, 1:-1] = np.where(real[:, :T], words[:, :T], 0)
    index[np.arange(len(words)), lengths + 1] = 1
    return index, lengths + 2


def _load_either_naming(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Weights saved by AllenNLP come under other names and in another order of gates."""
    assert isinstance(module, CharacterBiLM)
    module._table = None
    translate(state_dict, prefix, module.bilm)
