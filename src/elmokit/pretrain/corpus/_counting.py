"""Exact counts of all distinct words in bounded memory: sorted runs on disk, merged at the end.

Words are numbered as they come, anew in each run; a run of `most_words` is sorted, written and forgotten. The merge
sorts all words by count, ties by bytes, and notes for each run which final number each of its numbers became. The
outcome does not depend on where runs were cut.
"""

import contextlib
import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import InputError
from elmokit.pretrain.corpus.files import ArrayWriter, FileCheck
from elmokit.pretrain.corpus.lexicon import COUNTS, STARTS, TEXT

MOST_WORDS = 2_000_000  # about 350 MB of Python objects
_MOST_FILES = 200  # merged at once; each takes two open files, of 1,024 that a process usually may have
_FLUSH = 1 << 16
_GATHERED_WORDS = 1 << 18


class WordCounter:
    """Numbers words within the current run and counts them. `first` are words whose place in the lexicon is fixed."""

    def __init__(self, folder: Path, *, first: Sequence[str], most_words: int = MOST_WORDS) -> None:
        self.folder, self.first, self.most_words = folder, len(first), most_words
        self.run = 0
        self._groups: dict[str, str] = {}  # of runs, and of groups of them, that were merged first
        self._start_run()
        self.number(first)

    def _start_run(self) -> None:
        self.places: defaultdict[str, int] = defaultdict()
        self.places.default_factory = self.places.__len__
        self.counts = np.zeros(1024, dtype=np.uint64)

    def number(self, words: Sequence[str]) -> NDArray[np.uint32]:
        """The words' numbers in the current run, new ones for words that it has not met."""
        return np.fromiter(map(self.places.__getitem__, words), dtype=np.uint32, count=len(words))

    def add(self, numbers: NDArray[np.uint32], counts: NDArray[np.int64]) -> None:
        """Count distinct words of the current run."""
        if len(self.places) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(2 * len(self.places), dtype=np.uint64)])
        self.counts[numbers] += counts.astype(np.uint64)

    def end_block(self) -> None:
        """Start a new run if this one is full; numbers given before belong to the run that was current then."""
        if len(self.places) >= self.most_words:
            self._spill()

    def _spill(self) -> None:
        words = list(self.places)
        order = sorted(
            range(len(words)), key=words.__getitem__
        )  # by code points, which is the order of the UTF-8 bytes
        with self._path("words").open("wb") as stream:
            stream.writelines(f"{words[k]}\n".encode() for k in order)
        numbers = np.array(order, dtype=np.uint32)
        counts = np.zeros(len(words), dtype=np.uint64)
        counts[: len(self.counts)] = self.counts[: len(words)]
        np.save(self._path("numbers.npy"), numbers)
        np.save(self._path("counts.npy"), counts[numbers])
        self.run += 1
        self._start_run()

    def _path(self, what: str, run: int | None = None) -> Path:
        return self.folder / f"run-{self.run if run is None else run:05d}.{what}"

    def finish(self, folder: Path) -> dict[str, FileCheck]:
        """Merge the runs and write the lexicon into `folder`; `lexicon_numbers` works from then on."""
        if self.places:
            self._spill()
        lengths = self._merge()
        if len(lengths) >= 1 << 32:
            raise InputError(f"the corpus has {len(lengths)} distinct words, more than 32 bits can number")
        totals = np.zeros(len(lengths), dtype=np.uint64)
        for run in range(self.run):
            totals[self._merged(run)] += np.load(self._path("counts.npy", run))
        # The merge is in byte order, so a stable sort by count leaves ties by bytes. Fixed words come first.
        key = totals.astype(np.int64)
        numbers = np.load(self._path("numbers.npy", 0))
        fixed = np.empty(len(numbers), dtype=np.int64)
        fixed[numbers] = self._merged(0)
        key[fixed[: self.first]] = key.max() + np.arange(self.first, 0, -1)
        order = np.argsort(-key, kind="stable")
        self.ranks = np.empty(len(order), dtype=np.uint32)
        self.ranks[order] = np.arange(len(order), dtype=np.uint32)
        return self._write(folder, order, lengths, totals)

    def lexicon_numbers(self, run: int) -> NDArray[np.uint32]:
        """What the numbers given out in a run became."""
        numbers = np.load(self._path("numbers.npy", run))
        found = np.empty(len(numbers), dtype=np.uint32)
        found[numbers] = self.ranks[self._merged(run)]
        return found

    def _merge(self) -> NDArray[np.uint32]:
        """All distinct words in byte order into one file; their lengths. Many runs are merged by groups first."""
        names, group = [f"run-{run:05d}" for run in range(self.run)], 0
        while len(names) > _MOST_FILES:
            merged = []
            for part in (names[k : k + _MOST_FILES] for k in range(0, len(names), _MOST_FILES)):
                merged.append(f"group-{group:05d}")
                group += 1
                with (self.folder / f"{merged[-1]}.words").open("wb") as stream:
                    stream.writelines(word + b"\n" for word in self._merge_files(part))
                for name in part:
                    self._groups[name] = merged[-1]
                    (self.folder / f"{name}.words").unlink()
            names = merged
        lengths = array("I")
        with (self.folder / "merged.text").open("wb") as text:
            for word in self._merge_files(names):
                text.write(word)
                lengths.append(len(word))
        return np.frombuffer(lengths, dtype=np.uint32)

    def _merge_files(self, names: Sequence[str]) -> Iterator[bytes]:
        """The distinct words of sorted files, in order; for each file, where its words stand among them, in another."""
        n_words, previous = 0, None
        places = [array("I") for _ in names]
        with contextlib.ExitStack() as stack:
            outputs = [stack.enter_context((self.folder / f"{name}.merged").open("wb")) for name in names]
            words = [_sorted_words(self.folder / f"{name}.words", k) for k, name in enumerate(names)]
            for word, k in heapq.merge(*words):
                if word != previous:
                    yield word
                    n_words, previous = n_words + 1, word
                places[k].append(n_words - 1)
                if len(places[k]) == _FLUSH:
                    places[k].tofile(outputs[k])
                    del places[k][:]
            for rest, output in zip(places, outputs, strict=True):
                rest.tofile(output)

    def _merged(self, run: int) -> NDArray[np.uint32]:
        """Where the words of a run, in byte order, stand among all."""
        name = f"run-{run:05d}"
        places = np.fromfile(self.folder / f"{name}.merged", dtype=np.uint32)
        while name := self._groups.get(name, ""):
            places = np.memmap(self.folder / f"{name}.merged", dtype=np.uint32, mode="r")[places]
        return np.asarray(places)

    def _write(
        self, folder: Path, order: NDArray[np.int64], lengths: NDArray[np.uint32], totals: NDArray[np.uint64]
    ) -> dict[str, FileCheck]:
        merged = np.memmap(self.folder / "merged.text", dtype=np.uint8, mode="r")
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        with (
            ArrayWriter(folder / TEXT) as text,
            ArrayWriter(folder / STARTS) as starts,
            ArrayWriter(folder / COUNTS) as counts,
        ):
            starts.write(np.zeros(1, dtype=np.uint64))
            for k in range(0, len(order), _GATHERED_WORDS):
                part = order[k : k + _GATHERED_WORDS]
                ends = np.cumsum(lengths[part], dtype=np.int64)
                shift = np.repeat(begins[part] - (ends - lengths[part]), lengths[part])
                starts.write(ends.astype(np.uint64) + np.uint64(text.bytes))
                text.write(merged[shift + np.arange(len(shift))])
                counts.write(totals[part])
            return {TEXT: text.close(), STARTS: starts.close(), COUNTS: counts.close()}


def _sorted_words(path: Path, k: int) -> Iterator[tuple[bytes, int]]:
    with path.open("rb") as stream:
        for line in stream:
            yield line[:-1], k
