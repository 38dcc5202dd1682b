"""Encoded sentences waiting on disk until all words are counted and have their final numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHUNK_SENTENCES = 1 << 16


class _Segment(NamedTuple):
    run: int
    sentences: int


class TokenSpool:
    """Sentences in order, their words numbered by the run of the counter that was current."""

    def __init__(self, folder: Path, part: str) -> None:
        self.paths = folder / f"{part}.spooled-tokens", folder / f"{part}.spooled-lengths"
        self.streams = [path.open("wb") for path in self.paths]
        self.segments: list[_Segment] = []
        self.sentences = self.tokens = 0

    def add(self, run: int, tokens: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> None:
        if not len(lengths):
            return
        for stream, values in zip(self.streams, (tokens, lengths), strict=True):
            stream.write(np.ascontiguousarray(values, dtype=np.uint32).data)
        if self.segments and self.segments[-1].run == run:
            self.segments[-1] = _Segment(run, self.segments[-1].sentences + len(lengths))
        else:
            self.segments.append(_Segment(run, len(lengths)))
        self.sentences += len(lengths)
        self.tokens += len(tokens)

    def __enter__(self) -> "TokenSpool":
        return self

    def __exit__(self, *error: object) -> None:
        for stream in self.streams:
            stream.close()

    def chunks(self) -> Iterator[tuple[int, NDArray[np.uint32], NDArray[np.uint32]]]:
        """(run, tokens, lengths) in the order they came, some ten thousand sentences at a time, once all are added."""
        with self.paths[0].open("rb") as tokens, self.paths[1].open("rb") as lengths:
            for run, left in self.segments:
                while left:
                    taken = np.fromfile(lengths, dtype=np.uint32, count=min(left, _CHUNK_SENTENCES))
                    left -= len(taken)
                    yield run, np.fromfile(tokens, dtype=np.uint32, count=int(taken.sum(dtype=np.int64))), taken
