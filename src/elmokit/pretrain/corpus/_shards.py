"""Sentences as numbers on disk: shards of token numbers and where each sentence starts, written once, memory-mapped.

A shard is two files of little-endian unsigned 32-bit numbers: `NAME.tokens`, the sentences one after the other without
boundaries, and `NAME.starts`, where each begins, with the end of the last one added.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.config import Count
from elmokit.errors import InputError
from elmokit.pretrain.corpus.files import ArrayWriter, FileCheck, map_array

SHARD_TOKENS = 1 << 25
_GATHERED_SENTENCES = 1 << 15
_KIND = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as the manifest lists it."""

    name: str
    sentences: Count
    tokens: Count


class Shard:
    """One shard, memory-mapped and checked when it is first used."""

    def __init__(self, folder: Path, info: ShardInfo, files: Mapping[str, FileCheck]) -> None:
        self.folder, self.info, self.files = folder, info, files

    @cached_property
    def tokens(self) -> NDArray[np.uint32]:
        """Lexicon numbers of all tokens of the shard."""
        return self._map(f"{self.info.name}.tokens")

    @cached_property
    def sentence_offsets(self) -> NDArray[np.uint32]:
        """Where each sentence starts in `tokens`, and the end of the last. (sentences + 1,)"""
        return self._map(f"{self.info.name}.starts")

    def _map(self, name: str) -> NDArray[np.uint32]:
        return map_array(self.folder / name, _KIND, self.files[name])


class ShardedCorpus:
    """The sentences of one part of a corpus, by number from 0, in corpus order."""

    def __init__(self, shards: list[Shard]) -> None:
        self.shards = tuple(shards)
        sizes = [shard.info.sentences for shard in shards]
        self.first_sentences = np.cumsum([0, *sizes], dtype=np.int64)  # (shards + 1,) global number of each's first
        self.n_tokens = sum(shard.info.tokens for shard in shards)

    def __len__(self) -> int:
        return int(self.first_sentences[-1])

    def __getitem__(self, k: int) -> NDArray[np.uint32]:
        """Lexicon numbers of sentence k, without boundaries: a slice of the mapped file."""
        if not 0 <= k < len(self):
            raise IndexError(f"sentence {k} of {len(self)}")
        at = int(np.searchsorted(self.first_sentences, k, side="right")) - 1
        shard, inner = self.shards[at], k - int(self.first_sentences[at])
        begin, end = shard.sentence_offsets[inner : inner + 2].tolist()
        return shard.tokens[begin:end]

    def __iter__(self) -> Iterator[NDArray[np.uint32]]:
        return (self[k] for k in range(len(self)))

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence, boundaries not counted. (sentences,)"""
        parts = [np.diff(shard.sentence_offsets).astype(np.int32) for shard in self.shards]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)

    def gather(self, which: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The chosen sentences one after the other, and their lengths."""
        lengths = self.lengths[which].astype(np.int64)
        ends = np.cumsum(lengths)
        tokens = np.empty(int(lengths.sum()), dtype=np.uint32)
        for k in range(0, len(which), _GATHERED_SENTENCES):  # the index arrays take more room than the tokens
            part = slice(k, k + _GATHERED_SENTENCES)
            self._gather(which[part], lengths[part], tokens[int(ends[k] - lengths[k]) : int(ends[part][-1])])
        return tokens, lengths

    def _gather(self, which: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[np.uint32]) -> None:
        at = np.searchsorted(self.first_sentences, which, side="right") - 1  # (chosen,) the shard of each
        within = np.arange(len(out)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # (tokens,)
        for k in np.unique(at).tolist():
            shard, here = self.shards[k], at == k
            begins = shard.sentence_offsets[which[here] - self.first_sentences[k]].astype(np.int64)
            places = np.repeat(here, lengths)
            out[places] = shard.tokens[np.repeat(begins, lengths[here]) + within[places]]


class ShardWriter:
    """Sentences into shards of about `shard_tokens`, never cut inside a sentence."""

    def __init__(self, folder: Path, part: str, *, shard_tokens: int = SHARD_TOKENS) -> None:
        if not 0 < shard_tokens < 1 << 31:
            raise InputError(f"shard_tokens = {shard_tokens}, expected between 1 and {(1 << 31) - 1}")
        self.folder, self.part, self.shard_tokens = folder, part, shard_tokens
        self.infos: list[ShardInfo] = []
        self.files: dict[str, FileCheck] = {}
        self._tokens: ArrayWriter | None = None
        self._lengths: list[NDArray[np.uint32]] = []
        self._size = 0

    def write(self, tokens: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> None:
        """Whole sentences, one after the other."""
        ends = np.cumsum(lengths, dtype=np.int64)
        sentence = done = 0
        while sentence < len(lengths):
            # As many as fit; the one that reaches the limit still goes in, so that a long sentence has a place.
            stop = int(np.searchsorted(ends, done + self.shard_tokens - self._size)) + 1
            upto = int(ends[min(stop, len(lengths)) - 1])
            self._append(tokens[done:upto], lengths[sentence:stop])
            sentence, done = stop, upto
            if self._size >= self.shard_tokens:
                self._end_shard()

    def _append(self, tokens: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> None:
        if self._tokens is None:
            self._tokens = ArrayWriter(self.folder / f"{self._name}.tokens")
        self._tokens.write(tokens)
        self._lengths.append(lengths)
        self._size += len(tokens)

    @property
    def _name(self) -> str:
        return f"{self.part}-{len(self.infos):05d}"

    def _end_shard(self) -> None:
        if self._tokens is None:
            return
        lengths = np.concatenate(self._lengths)
        self.files[f"{self._name}.tokens"] = self._tokens.close()
        with ArrayWriter(self.folder / f"{self._name}.starts") as starts:
            starts.write(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.uint32))
            self.files[f"{self._name}.starts"] = starts.close()
        self.infos.append(ShardInfo(self._name, len(lengths), self._size))
        self._tokens, self._lengths, self._size = None, [], 0

    def close(self) -> None:
        """End the last shard; `infos` and `files` are complete then."""
        self._end_shard()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *error: object) -> None:
        if self._tokens is not None:
            self._tokens.stream.close()
