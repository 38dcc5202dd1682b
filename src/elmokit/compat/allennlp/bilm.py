"""AllenNLP's biLM over character ids: `_ElmoBiLm`, with its parts `_ElmoCharacterEncoder` and `ElmoLstm`.

The parameters are AllenNLP's own, name by name and number by number, so that code which filters them by name, loads or
saves them goes on working. The network that runs is elmokit's; it is assembled from them (see `names.py`).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.chars import N_BYTE_IDS, ByteCodec
from elmokit.compat.allennlp.names import TOKENS, Parts, assemble, translate
from elmokit.compat.allennlp.source import ConfigurationError, Named, load_model
from elmokit.compat.allennlp.states import ElmoLstm
from elmokit.nn.bilm import BiLM, BiLMConfig
from elmokit.weights import Pretrained

Ints = NDArray[np.int64]
WORDS_AT_ONCE = 4096
T = TypeVar("T")

logger = logging.getLogger(__name__)


def lazy_groups_of(iterator: Iterable[T], group_size: int) -> Iterator[list[T]]:
    """Lists of `group_size` things, the last one of what is left."""
    if group_size < 1:
        raise ConfigurationError(f"group_size is {group_size}; a group has at least 1 thing")
    waiting = iter(iterator)
    return iter(lambda: list(islice(waiting, group_size)), [])


class _ElmoCharacterEncoder(nn.Module):  # the name that it had
    """Character ids (B, T, C) to {"token_embedding": (B, T + 2, P), "mask": (B, T + 2) int64}, boundaries added.

    Each distinct word of a batch is encoded once.
    """

    def __init__(
        self, options_file: Named = None, weight_file: Named = None, requires_grad: bool = False, *, module: Any = None
    ) -> None:
        super().__init__()
        found: tuple[ByteCodec, Parts] = module or read_parts(load_model(options_file, weight_file))
        self.codec, parts = found
        self._config: BiLMConfig = parts.config
        parts.fill(self, TOKENS)
        self.requires_grad_(requires_grad)

    @property
    def output_dim(self) -> int:
        return self._config.tokens.projection_dim

    def get_output_dim(self) -> int:
        return self.output_dim

    @property
    def _max_characters_per_token(self) -> int:
        return self._config.tokens.max_characters

    @property
    def _beginning_of_sentence_characters(self) -> Tensor:
        return torch.from_numpy(self.codec.begin.astype(np.int64))

    @property
    def _end_of_sentence_characters(self) -> Tensor:
        return torch.from_numpy(self.codec.end.astype(np.int64))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        bilm = assemble(self._config, {f"{TOKENS}.{name}": p for name, p in self.named_parameters()})
        types, index, lengths = distinct_words(inputs, self.codec)
        trained = any(p.requires_grad for p in self.parameters())
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            device = next(self.parameters()).device
            vectors = bilm.tokens(torch.from_numpy(types).to(device))[torch.from_numpy(index).to(device)]
            mask = torch.arange(index.shape[1]) < torch.from_numpy(lengths)[:, None]
            vectors = vectors * mask.to(device)[..., None]  # (B, longest + 2, P)
        missing = inputs.shape[1] + 2 - index.shape[1]
        padded = nn.functional.pad(vectors, (0, 0, 0, missing))
        return {"token_embedding": padded, "mask": nn.functional.pad(mask, (0, missing)).long().to(device)}


class _ElmoBiLm(nn.Module):
    """Character ids (B, T, C) to {"activations": [(B, T + 2, D)] * L, "mask": (B, T + 2) int64}, boundaries in it.

    With `vocab_to_cache` and a frozen model, word ids (B, T) take their vectors from a table made once for the whole
    list; word 0 is padding. The character ids may then be the word ids themselves.
    """

    def __init__(
        self,
        options_file: Named = None,
        weight_file: Named = None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
        pretrained: Pretrained | None = None,
    ) -> None:
        super().__init__()
        codec, parts = read_parts(pretrained or load_model(options_file, weight_file))
        self.config: BiLMConfig = parts.config
        self._token_embedder = _ElmoCharacterEncoder(module=(codec, parts), requires_grad=requires_grad)
        self._elmo_lstm = ElmoLstm(parts, stateful=stateful).requires_grad_(requires_grad)
        self._requires_grad = requires_grad
        self._vocabulary: list[str] = []
        self._assembled: tuple[object, BiLM] | None = None  # of which weights
        self._table: tuple[object, Tensor] | None = None  # (2 + V, P), boundaries first
        self.register_load_state_dict_pre_hook(_load_either_naming)  # type: ignore[no-untyped-call]
        if vocab_to_cache:
            self.create_cached_cnn_embeddings(vocab_to_cache)

    @property
    def codec(self) -> ByteCodec:
        return self._token_embedder.codec

    @property
    def num_layers(self) -> int:
        """Layers that come out, the token layer included."""
        return self.config.depth

    def get_output_dim(self) -> int:
        return self.config.width

    @property
    def bilm(self) -> BiLM:
        """elmokit's network with these weights; while they are frozen, the same one each time."""
        weights = dict(self.named_parameters())
        if self._trained:
            return assemble(self.config, weights)
        known, stamp = self._assembled, weights_stamp(weights.values())
        if known is None or known[0] != stamp:
            with torch.no_grad():
                self._assembled = known = stamp, assemble(self.config, weights)
        return known[1]

    @property
    def _trained(self) -> bool:
        return any(p.requires_grad for p in self.parameters())

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Word k of `tokens` is word id k from now on; its vector is computed once."""
        self._vocabulary, self._table = list(tokens), None
        if self._trained:
            logger.warning("the weights are trained, so the characters are read, and the table of words is not used")

    @property
    def _word_embedding(self) -> nn.Embedding | None:
        """The table of `create_cached_cnn_embeddings`."""
        if not self._vocabulary:
            return None
        table = self._cached(self.bilm)[2:]  # (V, P)
        return nn.Embedding(len(table), table.shape[1], padding_idx=0, _weight=table, _freeze=True)

    @property
    def _bos_embedding(self) -> Tensor | None:
        return self._cached(self.bilm)[0] if self._vocabulary else None

    @property
    def _eos_embedding(self) -> Tensor | None:
        return self._cached(self.bilm)[1] if self._vocabulary else None

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        trained, bilm = self._trained, self.bilm
        device = next(self.parameters()).device
        with torch.set_grad_enabled(trained and torch.is_grad_enabled()):
            if word_inputs is not None and not trained and self._knows(word_inputs):
                words: Ints = word_inputs.detach().cpu().numpy()
                index, lengths = _between_boundaries(words + 2, words > 0)
                vectors = self._cached(bilm)
            else:
                types, index, lengths = distinct_words(inputs, self.codec)
                vectors = bilm.tokens(torch.from_numpy(types).to(device))  # (U, P)
            places = torch.from_numpy(index).to(device)
            stack = self._elmo_lstm.through(
                bilm, vectors, len(lengths), lambda state: bilm.contextualise(vectors, places, lengths, state=state)
            )
        missing = inputs.shape[1] + 2 - stack.values.shape[2]  # columns of padding that no sentence reaches
        values = nn.functional.pad(stack.values, (0, 0, 0, missing))  # (L, B, T + 2, D)
        return {"activations": list(values), "mask": nn.functional.pad(stack.mask, (0, missing)).long()}

    def _knows(self, word_inputs: Tensor) -> bool:
        return bool(self._vocabulary) and (word_inputs.numel() == 0 or int(word_inputs.max()) < len(self._vocabulary))

    @torch.no_grad()
    def _cached(self, bilm: BiLM) -> Tensor:
        known, stamp = self._table, weights_stamp(self._token_embedder.parameters())
        if known is None or known[0] != stamp:
            rows = [self.codec.begin[None], self.codec.end[None], self.codec.encode(self._vocabulary)]
            device = next(self.parameters()).device
            parts = torch.split(torch.from_numpy(np.concatenate(rows)).to(device), WORDS_AT_ONCE)
            self._table = known = stamp, torch.cat([bilm.tokens(part) for part in parts])  # (2 + V, P)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_assembled": None, "_table": None}  # made again where needed


def read_parts(made: Pretrained) -> tuple[ByteCodec, Parts]:
    """What the modules are made of; refuses a model that reads no characters of AllenNLP's kind."""
    codec = made.codec.build(made.config.tokens.max_characters)
    if not isinstance(codec, ByteCodec):
        raise ConfigurationError(
            "this model has no character ids of AllenNLP's kind; use ElmoEmbedder, which takes tokens, or "
            "elmokit.encoders.ElmoEmbedding"
        )
    return codec, Parts.of(made)


def weights_stamp(weights: Iterable[Tensor]) -> object:
    """Another one whenever these weights were loaded, trained, moved or changed in place."""
    return tuple((id(p), p.data_ptr(), p.dtype, 0 if p.is_inference() else p._version) for p in weights)


def distinct_words(inputs: Tensor, codec: ByteCodec) -> tuple[NDArray[np.int32], Ints, Ints]:
    """The rows of the distinct words, the boundaries first; which stands where; the lengths with boundaries."""
    ids: Ints = inputs.detach().cpu().numpy()  # (B, T, C)
    if ids.ndim != 3 or ids.shape[-1] != codec.width:
        raise ConfigurationError(
            f"character ids of shape {ids.shape}, expected (sentences, tokens, {codec.width}): this model's words have "
            f"at most {codec.width - 2} characters, and batch_to_ids makes rows of 50; word ids alone need "
            "vocab_to_cache, word_inputs and words that are in it"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < N_BYTE_IDS:
        raise ConfigurationError(f"character ids from {ids.min()} to {ids.max()}, expected 0 to {N_BYTE_IDS - 1}")
    real = np.asarray((ids > 0).any(axis=-1))  # (B, T)
    rows, inverse = np.unique(ids[real], axis=0, return_inverse=True)
    words = np.zeros(real.shape, dtype=np.int64)
    words[real] = inverse.reshape(-1) + 2
    types = np.concatenate([codec.begin[None], codec.end[None], rows.astype(np.int32)])  # (U, C)
    return types, *_between_boundaries(words, real)


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
    """Weights saved by elmokit 0.1.0 come under other names, both directions together."""
    assert isinstance(module, _ElmoBiLm)
    translate(state_dict, prefix, module.config)
