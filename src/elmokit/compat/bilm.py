"""bilm-tf's names as functions over arrays: `Batcher`, `TokenBatcher`, `BidirectionalLanguageModel`, `weight_layers`,
`dump_bilm_embeddings` and `dump_token_embeddings`.

There is no TensorFlow graph. A model is called with arrays instead of placeholders and returns arrays instead of
operations: `sess.run(op, feed_dict={ids: x})` becomes the call itself. Mixes start as they did there (equal weights,
gamma 1) and are not trained; a trained mix gives its `weights` and `gamma`. State is carried from call to call, row by
row, as it was in a session; `stateful=False` starts every sentence from zero.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import BOS, EOS, N_BYTE_IDS, ByteCodec
from elmokit.compat.vocabulary import Vocabulary
from elmokit.encoders.elmo.carry import RowStates
from elmokit.encoders.places import pick_device
from elmokit.errors import InputError, WeightsError
from elmokit.formats.atomic import atomic_path
from elmokit.formats.given import token_sentence
from elmokit.formats.streams import read_lines
from elmokit.nn.mix import LAYER_NORM_EPSILON
from elmokit.weights import load_pretrained

__all__ = [
    "Batcher", "BidirectionalLanguageModel", "TokenBatcher", "Vocabulary", "dump_bilm_embeddings",
    "dump_token_embeddings", "weight_layers",
]  # fmt: skip

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
WORDS_AT_ONCE = 4096


class Batcher:
    """Token lists to character ids (B, T + 2, C), int64: boundaries in it, zero at padding.

    A literal <S> or </S> among the tokens means a boundary if the vocabulary lists it.
    """

    def __init__(self, lm_vocab_file: str | Path, max_token_length: int) -> None:
        self.vocabulary = Vocabulary.read(lm_vocab_file)
        self._codec = ByteCodec(max_token_length, boundary_tokens=False)
        self._marks = {
            mark: row
            for mark, row in ((BOS, self._codec.begin), (EOS, self._codec.end))
            if mark in self.vocabulary.numbers
        }

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> Ints:
        tokens = [token_sentence(sentence, k).tokens for k, sentence in enumerate(sentences)]
        ids = np.zeros((len(tokens), max(map(len, tokens), default=0) + 2, self._codec.width), dtype=np.int64)
        for row, words in zip(ids, tokens, strict=True):
            row[0], row[len(words) + 1] = self._codec.begin, self._codec.end
            row[1 : len(words) + 1] = self._codec.encode(words)
            for place, word in enumerate(words, start=1):
                if word in self._marks:
                    row[place] = self._marks[word]
        return ids


class TokenBatcher:
    """Token lists to word ids (B, T + 2), int64, counted from 1: boundaries in it, zero at padding."""

    def __init__(self, lm_vocab_file: str | Path) -> None:
        self.vocabulary = Vocabulary.read(lm_vocab_file, validate_file=True)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> Ints:
        tokens = [token_sentence(sentence, k).tokens for k, sentence in enumerate(sentences)]
        ids = np.zeros((len(tokens), max(map(len, tokens), default=0) + 2), dtype=np.int64)
        for row, words in zip(ids, tokens, strict=True):
            row[: len(words) + 2] = self.vocabulary.encode(words, split=False) + 1
        return ids


class BidirectionalLanguageModel:
    """A model over the ids of `Batcher`, or with `use_character_inputs=False` over those of `TokenBatcher`.

    `embedding_weight_file`, made by `dump_token_embeddings`, has the words' vectors for the latter. `max_batch_size`
    has no effect.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        stateful: bool = True,
        device: str | torch.device = "auto",
    ) -> None:
        made = load_pretrained(options=options_file, weights=weight_file, softmax=False)
        self.bilm = made.build(device=pick_device(device))
        self.options = {"lstm": {"projection_dim": made.config.lstm.projection_dim, "n_layers": made.config.n_layers}}
        self.stateful = stateful
        self.device = pick_device(device)
        self._width = made.config.tokens.max_characters
        self._rows = RowStates()
        self._table: Tensor | None = None
        if use_character_inputs:
            return
        if embedding_weight_file is None:
            raise InputError("embedding_weight_file is needed with use_character_inputs=False")
        self._table = _read_table(Path(embedding_weight_file), made.config.lstm.projection_dim).to(self.device)

    def __call__(self, ids: Any) -> dict[str, NDArray[Any]]:
        """One batch of ids, boundaries in them.

        "lm_embeddings" (B, L, T, D) and "mask" (B, T) without boundaries, "lengths" (B,) without them, and
        "token_embeddings" (B, T + 2, P) with them. Padding is zero.
        """
        given: Ints = np.asarray(ids)
        real, types, index = self._read(given)
        lengths = real.sum(axis=1)
        if not np.array_equal(real, np.arange(real.shape[1]) < lengths[:, None]) or (lengths < 2).any():
            raise InputError("a row of ids is not <S> words </S> padding, in that order; a batcher makes such rows")
        with torch.no_grad():
            places = torch.from_numpy(index).to(self.device)
            vectors = self.tokens(types)  # (U, P)
            state = self._rows.first(len(index), self.bilm) if self.stateful else None
            stack, ended = self.bilm.contextualise(vectors, places, lengths, state=state)
            if self.stateful:
                self._rows.update(ended)
            inner = stack.inner()
            tokens = vectors[places] * torch.from_numpy(real).to(self.device)[..., None]  # (B, T + 2, P)
        missing = given.shape[1] - stack.values.shape[2]  # columns of padding that no sentence reaches
        return {
            "lm_embeddings": _pad(inner.values.transpose(0, 1), missing, axis=2),
            "lengths": (lengths - 2).astype(np.int32),
            "token_embeddings": tokens.cpu().numpy(),
            "mask": _pad(inner.mask, missing, axis=1),
        }

    def reset_states(self) -> None:
        """Every row starts from zero again: a new session."""
        self._rows = RowStates()

    def tokens(self, types: NDArray[Any]) -> Tensor:
        """The vectors of distinct words, by their characters (U, C) or their numbers (U,). (U, P)"""
        given = torch.from_numpy(types).to(self.device)
        if self._table is not None:
            return self._table[given]
        found: Tensor = self.bilm.tokens(given)
        return found

    def _read(self, ids: Ints) -> tuple[NDArray[np.bool_], NDArray[Any], Ints]:
        """Which positions are real (B, T), the distinct words, and which stands where (B, T)."""
        if self._table is None:
            if ids.ndim != 3 or ids.shape[-1] != self._width or not _between(ids, N_BYTE_IDS):
                raise InputError(
                    f"ids of shape {ids.shape}, expected character ids (sentences, positions, {self._width}) below "
                    f"{N_BYTE_IDS}, as Batcher(vocabulary, {self._width}) makes them"
                )
            real = np.asarray((ids > 0).any(axis=-1))
            types, inverse = np.unique(ids[real], axis=0, return_inverse=True)
        else:
            if ids.ndim != 2 or not _between(ids, len(self._table)):
                raise InputError(
                    f"ids of shape {ids.shape}, expected word ids (sentences, positions) below {len(self._table)}, as "
                    "TokenBatcher makes them"
                )
            real = np.asarray(ids > 0)
            types, inverse = np.unique(ids[real], return_inverse=True)
        index = np.zeros(real.shape, dtype=np.int64)
        index[real] = inverse.reshape(-1)
        return real, types.astype(np.int64 if self._table is not None else np.int32), index


def weight_layers(
    name: str,
    bilm_ops: dict[str, NDArray[Any]],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    reuse: bool = False,
    *,
    weights: Sequence[float] | None = None,
    gamma: float = 1.0,
) -> dict[str, Any]:
    """{"weighted_op": the mix of a model's output (B, T, D), "regularization_op": its penalty}.

    `weights` are before the softmax (default: all 0), `name` and `reuse` were for variables and have no effect. Layer
    norm takes each layer's mean and variance over all words of the batch, boundaries not counted.
    """
    layers, mask = bilm_ops["lm_embeddings"], bilm_ops["mask"].astype(np.float32)[:, None, :, None]  # (B, L, T, D)
    depth = layers.shape[1]
    raw = np.zeros(depth) if weights is None else np.asarray(weights, dtype=np.float64)
    if raw.shape != (depth,):
        raise InputError(f"{raw.size} weights for {depth} layers")
    if use_top_only:
        return {"weighted_op": (layers[:, -1] * gamma).astype(np.float32), "regularization_op": 0.0}
    if do_layer_norm:
        count = mask.sum() * layers.shape[-1]
        mean = (layers * mask).sum(axis=(0, 2, 3), keepdims=True) / count
        variance = (np.square(layers - mean) * mask).sum(axis=(0, 2, 3), keepdims=True) / count
        layers = (layers - mean) / np.sqrt(variance + LAYER_NORM_EPSILON) * mask
    shares = np.exp(raw - raw.max())
    shares /= shares.sum()
    mixed = np.einsum("l,bltd->btd", shares, layers) * gamma
    return {
        "weighted_op": mixed.astype(np.float32),
        "regularization_op": float((l2_coef or 0.0) * np.square(raw).sum()),
    }


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
    *,
    stateful: bool = True,
) -> None:
    """One tokenised sentence per line to an HDF5 file: key = line number from 0, value (L, T, D) float32.

    Sentences run one by one, each from the state that the one before left. The file appears when it is complete.
    """
    model = BidirectionalLanguageModel(options_file, weight_file, stateful=stateful)
    batcher = Batcher(vocab_file, model._width)

    def fill(file: h5py.File) -> None:
        for number, line in enumerate(read_lines(dataset_file)):
            found = model(batcher.batch_sentences([line.split()]))["lm_embeddings"][0]
            file.create_dataset(str(number), data=found, dtype="float32")

    _write(outfile, fill)


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """The vectors of a vocabulary's words, without context: dataset `embedding` (V, P) in its order."""
    model = BidirectionalLanguageModel(options_file, weight_file)
    batcher = Batcher(vocab_file, model._width)
    parts = []
    for start in range(0, batcher.vocabulary.size, WORDS_AT_ONCE):
        ids = batcher.batch_sentences([[word] for word in batcher.vocabulary[start : start + WORDS_AT_ONCE]])
        with torch.no_grad():
            parts.append(model.tokens(ids[:, 1].astype(np.int32)).cpu().numpy())
    table = np.concatenate(parts) if parts else np.zeros((0, model.options["lstm"]["projection_dim"]), np.float32)
    _write(outfile, lambda file: file.create_dataset("embedding", data=table, dtype="float32"))


def _write(path: str | Path, fill: Callable[[h5py.File], Any]) -> None:
    with atomic_path(path) as part, h5py.File(part, "w") as file:
        fill(file)


def _read_table(path: Path, width: int) -> Tensor:
    """Row 0 is padding. (1 + V, P)"""
    try:
        with h5py.File(path) as file:
            values = np.asarray(file["embedding"][...], dtype=np.float32)
    except (OSError, KeyError) as error:
        raise WeightsError(
            f"{path}: no `embedding` to read ({error}); dump_token_embeddings writes such a file"
        ) from None
    if values.ndim != 2 or values.shape[1] != width:
        raise WeightsError(f"{path}: vectors of shape {values.shape}, expected (words, {width}); another model's file?")
    return torch.from_numpy(np.concatenate([np.zeros((1, width), dtype=np.float32), values]))


def _between(ids: Ints, limit: int) -> bool:
    return bool(ids.min(initial=0) >= 0 and ids.max(initial=0) < limit)


def _pad(values: Tensor, more: int, *, axis: int) -> NDArray[Any]:
    found = values.cpu().numpy()
    return np.pad(found, [(0, more if k == axis else 0) for k in range(found.ndim)])
