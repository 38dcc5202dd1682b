"""Where the layers of a task's sentences come from: a table made once, the running encoder, or an encoder in training.

`LayerTable` holds every layer of every token of a data set in float16, in memory or mapped from a file. The file is
named after the encoder's fingerprint and the tokens, appears whole or not at all and ends with a checksum; a damaged
one is made again. An encoder that runs for predictions is rounded the same way. A fine-tuned encoder has no table.
"""

import hashlib
import math
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.encoders import Elmo, ElmoEmbedding, Encoder
from elmokit.errors import ElmokitWarning, FormatError, InputError
from elmokit.formats.atomic import atomic_write
from elmokit.formats.locks import BusyError, locked
from elmokit.formats.resumable import disk_errors
from elmokit.layers import LayerStack
from elmokit.text import Sentence

Told = Callable[[int, int], None]  # how much is done, of how much
ON_DEVICE = 0.4  # share of a GPU's free memory that a table may take
CHECKSUM = struct.Struct("<4sI")  # after the numbers: a mark and their CRC-32; files of 0.1.0 have none
MARK, CHUNK = b"CRC1", 1 << 20


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
    shape = (sum(lengths), len(encoder.layer_names), encoder.width)
    made = _run(encoder, sentences, batch_tokens, told)
    if folder is None:
        values, done = np.empty(shape, dtype=np.float16), 0
        for rows in made:
            values[done : done + len(rows)] = rows
            done += len(rows)
        return LayerTable(values, lengths, encoder.layer_names)
    path = folder / f"{_key(encoder, sentences)}.npy"
    there = path.is_file()
    mapped = _map(path, shape) if there else None
    if mapped is None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.with_suffix(".lock")
        with disk_errors(folder), _alone(lock):
            try:
                if there or not path.is_file():  # damaged, or not made meanwhile
                    _write(path, made, shape)
            finally:
                lock.unlink(missing_ok=True)
        mapped = _map(path, shape)
        assert mapped is not None
    return LayerTable(mapped, lengths, encoder.layer_names)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Of processes that need the same layers one computes them, and the others wait."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, busy="computed elsewhere"))
        except BusyError:
            warnings.warn(
                "another process computes the layers of this text; waiting for it", ElmokitWarning, stacklevel=4
            )
            stack.enter_context(locked(lock, busy=None))
        yield


class LayerSource(Protocol):
    """Sentences to their layers, without boundaries, in float32, with one position at least."""

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:  # (L, B, T, D)
        ...


class CachedLayers:
    """The layers of all sentences that were given when it was made, each distinct one once."""

    def __init__(self, table: LayerTable, places: dict[tuple[str, ...], int]) -> None:
        self.table, self.places = table, places
        self._moved: Tensor | None = None  # (N, L, D), the table on the device

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        sentences: Iterable[Sentence],
        *,
        folder: Path | None = None,
        batch_tokens: int | None = None,
        told: Told | None = None,
    ) -> "CachedLayers":
        """Computed, or found again in `folder`; without one, kept in memory."""
        distinct = {sentence.tokens: sentence for sentence in sentences}
        table = embed_layers(encoder, list(distinct.values()), folder=folder, batch_tokens=batch_tokens, told=told)
        return cls(table, {tokens: k for k, tokens in enumerate(distinct)})

    @property
    def nbytes(self) -> int:
        """Bytes that the table takes."""
        return self.table.values.nbytes

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        try:
            picked = [self.places[sentence.tokens] for sentence in sentences]
        except KeyError as error:
            words = " ".join(error.args[0])[:60]
            raise InputError(f"no layers were computed for {words!r}; make them of all sentences first") from None
        if device.type == "cuda" and self._fits(device):
            return self._gathered(picked, device)
        return self.table.stack(picked, device=device)

    def _fits(self, device: torch.device) -> bool:
        """Whether the whole table is on the device, or can be: batches are then gathered there."""
        if self._moved is None and self.nbytes < ON_DEVICE * torch.cuda.mem_get_info(device)[0]:
            self._moved = torch.from_numpy(np.array(self.table.values)).to(device)
        return self._moved is not None

    def _gathered(self, picked: list[int], device: torch.device) -> LayerStack:
        assert self._moved is not None
        starts = torch.from_numpy(self.table.starts[picked]).to(device)  # (B,)
        lengths = torch.from_numpy(self.table.starts[np.array(picked) + 1]).to(device) - starts  # (B,)
        steps = torch.arange(max(int(lengths.max()), 1), device=device)  # (T,)
        mask = steps < lengths[:, None]  # (B, T)
        rows = (starts[:, None] + steps).masked_fill(~mask, 0)  # (B, T)
        values = self._moved[rows].float() * mask[..., None, None]  # (B, T, L, D)
        return LayerStack(values.permute(2, 0, 1, 3), mask, self.table.names)


class LiveLayers:
    """The encoder as it runs; `rounded` to what a table would hold."""

    def __init__(self, encoder: Encoder, *, rounded: bool = True) -> None:
        self.encoder, self.rounded = encoder, rounded

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        stack = at_least_one(self.encoder.run(list(sentences)).inner())
        values = stack.values.to(device)
        return replace(stack, values=(values.half() if self.rounded else values).float(), mask=stack.mask.to(device))


class TunedLayers(nn.Module):
    """A biLM that is trained with the task: its layers have gradients."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, Elmo):
            raise InputError(f"{encoder.source}: only an ELMo can be fine-tuned with a task; leave fine_tune out")
        self.origin = encoder
        self.embedding = ElmoEmbedding(encoder.pretrained, mixes=(), fine_tune=True)

    def stack(self, sentences: Sequence[Sentence], device: torch.device) -> LayerStack:
        return at_least_one(self.embedding.layers(sentences).inner())

    def as_encoder(self) -> Elmo:
        """An encoder with the biLM as it is now; the softmax belonged to what it was."""
        before = self.origin.pretrained
        tensors = {name: values.detach().cpu() for name, values in self.embedding.bilm.state_dict().items()}
        now = replace(
            before, tensors=tensors, softmax=None, source=f"{before.source}, fine-tuned", format=None, stored=None
        )
        # Whichever tokenizer it ran with so far, it goes on with.
        cut = self.origin.tokenizer
        return Elmo(now, device=self.origin.device, tokenizer=cut, allow_other_tokenizer=True)


def at_least_one(stack: LayerStack) -> LayerStack:
    """The stack with a position of padding where it has no position at all."""
    if stack.values.shape[2]:
        return stack
    L, B, _, D = stack.values.shape
    return replace(stack, values=stack.values.new_zeros(L, B, 1, D), mask=stack.mask.new_zeros(B, 1))


def _run(
    encoder: Encoder, sentences: Sequence[Sentence], batch_tokens: int | None, told: Told | None
) -> Iterator[NDArray[np.float16]]:
    """The layers of one sentence after the other. (T, L, D)"""
    done, total = 0, sum(map(len, sentences))
    for sentence, layers in encoder.stream(sentences, layers="all", batch_tokens=batch_tokens):
        yield np.ascontiguousarray(layers.transpose(1, 0, 2), dtype=np.float16)
        done += len(sentence)
        if told is not None:
            told(done, total)


def _write(path: Path, made: Iterable[NDArray[np.float16]], shape: tuple[int, ...]) -> None:
    """Row by row, not through a mapping: there a full disk would end the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(path.parent), atomic_write(path) as file:
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        crc = 0
        for rows in made:
            data = rows.astype("<f2", copy=False).reshape(-1).view(np.uint8).data
            crc = zlib.crc32(data, crc)
            file.write(data)
        file.write(CHECKSUM.pack(MARK, crc))


def _map(path: Path, shape: tuple[int, ...]) -> NDArray[np.float16] | None:
    """The numbers in a file, mapped into memory; None where there is no file or it is damaged."""
    if not path.is_file():
        return None
    size, offset = 2 * math.prod(shape), 0
    try:
        with path.open("rb") as file:
            whole = np.lib.format.read_magic(file) == (1, 0)
            whole &= np.lib.format.read_array_header_1_0(file) == (shape, False, np.dtype("<f2"))
            offset, crc, left = file.tell(), 0, size
            while left and (data := file.read(min(CHUNK, left))):
                crc, left = zlib.crc32(data, crc), left - len(data)
            whole &= not left and file.read(CHECKSUM.size + 1) in (b"", CHECKSUM.pack(MARK, crc))
    except Exception:  # whatever a damaged header leads to
        whole = False
    if not whole:
        warnings.warn(f"{path}: damaged; its layers are computed again", stacklevel=4)
        return None
    if not size:
        return np.zeros(shape, dtype=np.float16)
    return np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=shape)


def verify_layers(path: Path) -> bool | None:
    """Whether a file of layers has a checksum, which fits; None where it is no such file. Damage is a FormatError."""
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                return None
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            sealed = path.stat().st_size - file.tell() != kind.itemsize * math.prod(shape)
    except ValueError:
        return None
    with warnings.catch_warnings(action="ignore"):
        if _map(path, shape) is None:
            raise FormatError(f"{path}: damaged; remove it, and it is made again")
    return sealed


def _key(encoder: Encoder, sentences: Sequence[Sentence]) -> str:
    digest = hashlib.blake2b(encoder.fingerprint.encode(), digest_size=16)
    for sentence in sentences:
        digest.update("\0".join(sentence.tokens).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()
