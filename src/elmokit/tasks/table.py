"""`LayerTable`: every layer of every token of a data set, computed once, so that an epoch costs the task alone.

The numbers are float16, in memory or mapped from a file. A file is named after the encoder's fingerprint and the
tokens, so that another model or another text never finds it, and it appears whole or not at all.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.encoders import Encoder
from elmokit.errors import InputError
from elmokit.formats import atomic_path
from elmokit.layers import LayerStack
from elmokit.text import Sentence

Told = Callable[[int, int], None]  # how much is done, of how much


class LayerTable:
    """The layers of S sentences, one after the other. Layer axis second: a sentence is one stretch of memory."""

    def __init__(self, values: NDArray[np.float16], lengths: Iterable[int], names: tuple[str, ...]) -> None:
        self.values = values  # (N, L, D)
        self.starts = np.concatenate([[0], np.cumsum(np.fromiter(lengths, dtype=np.int64))])  # (S + 1,)
        self.names = names
        if len(values) != self.starts[-1]:
            raise InputError(f"{len(values)} rows of vectors for sentences of {self.starts[-1]} tokens in all")

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def depth(self) -> int:
        return int(self.values.shape[1])

    @property
    def width(self) -> int:
        return int(self.values.shape[2])

    def sentence(self, k: int) -> NDArray[np.float16]:
        """The layers of sentence k. (T, L, D)"""
        return self.values[self.starts[k] : self.starts[k + 1]]

    def layer(self, k: int) -> NDArray[np.float16]:
        """One layer of all tokens. (N, D)"""
        return np.ascontiguousarray(self.values[:, k])

    def only(self, layers: Sequence[int]) -> "LayerTable":
        """The same tokens with these layers alone, copied into memory."""
        names = tuple(self.names[k] for k in layers)
        return LayerTable(self.values[:, list(layers)], np.diff(self.starts), names)

    def stack(self, sentences: Sequence[int], *, device: torch.device | str = "cpu") -> LayerStack:
        """A batch of sentences as an encoder would return it, without boundaries, in float32; a position at least."""
        lengths = [int(self.starts[k + 1] - self.starts[k]) for k in sentences]
        padded = np.zeros((len(lengths), max(lengths, default=0) or 1, self.depth, self.width), dtype=np.float16)
        for row, k, n in zip(padded, sentences, lengths, strict=True):
            row[:n] = self.sentence(k)
        values = torch.from_numpy(padded).to(device).float().permute(2, 0, 1, 3)  # (L, B, T, D)
        steps = torch.arange(padded.shape[1], device=device)
        mask = steps < torch.tensor(lengths, device=device)[:, None]  # (B, T)
        return LayerStack(values, mask, self.names)


def embed_layers(
    encoder: Encoder,
    sentences: Sequence[Sentence],
    *,
    folder: Path | None = None,
    batch_tokens: int | None = None,
    told: Told | None = None,
) -> LayerTable:
    """The layers of all sentences; with `folder`, mapped from a file there, which is made if it is not there yet."""
    lengths = [len(sentence) for sentence in sentences]
    if folder is None:
        values = np.empty((sum(lengths), len(encoder.layer_names), encoder.width), dtype=np.float16)
        _fill(values, encoder, sentences, batch_tokens, told)
        return LayerTable(values, lengths, encoder.layer_names)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_key(encoder, sentences)}.npy"
    if not path.exists():
        shape = (sum(lengths), len(encoder.layer_names), encoder.width)
        with atomic_path(path) as part:
            mapped = np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=shape)
            _fill(mapped, encoder, sentences, batch_tokens, told)
            mapped.flush()
    return LayerTable(np.load(path, mmap_mode="r"), lengths, encoder.layer_names)


def _fill(
    values: NDArray[np.float16],
    encoder: Encoder,
    sentences: Sequence[Sentence],
    batch_tokens: int | None,
    told: Told | None,
) -> None:
    done = 0
    for sentence, layers in encoder.stream(sentences, layers="all", batch_tokens=batch_tokens):
        values[done : done + len(sentence)] = layers.transpose(1, 0, 2)
        done += len(sentence)
        if told is not None:
            told(done, len(values))


def _key(encoder: Encoder, sentences: Sequence[Sentence]) -> str:
    digest = hashlib.blake2b(encoder.fingerprint.encode(), digest_size=16)
    for sentence in sentences:
        digest.update("\0".join(sentence.tokens).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
