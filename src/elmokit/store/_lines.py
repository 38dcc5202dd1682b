"""The sentences of a file as they come, on disk: which stand on several lines, and all of them as JSON."""

import mmap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from json.encoder import encode_basestring_ascii
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 1 << 14  # sentences that are read at a time


class SentenceLines:
    """Sentences in order; a corpus may hold more text than memory does, so they are in a file until they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w+b")
        self._sizes: list[NDArray[np.int32]] = []  # of each as JSON
        self._hashes: list[NDArray[np.int64]] = []
        self._last: NDArray[np.bool_] | None = None

    def add(self, lines: Sequence[str]) -> None:
        made = list(map(encode_basestring_ascii, lines))
        self._file.write("".join(made).encode())
        self._sizes.append(np.fromiter(map(len, made), np.int32, len(made)))
        self._hashes.append(np.fromiter(map(hash, lines), np.int64, len(lines)))
        self._last = None

    def __len__(self) -> int:
        return sum(map(len, self._sizes))

    @property
    def duplicates(self) -> int:
        """Sentences that also stand on an earlier line."""
        return int(np.count_nonzero(~self.last))

    @property
    def last(self) -> NDArray[np.bool_]:
        """Which of them stand on no later line."""
        if self._last is None:
            self._last = self._find()
        return self._last

    def _find(self) -> NDArray[np.bool_]:
        hashes = np.concatenate([np.zeros(0, np.int64), *self._hashes])
        last = np.ones(len(hashes), bool)
        order = np.argsort(hashes, kind="stable")
        alike = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        last[order[alike]] = False
        # Equal hashes are equal sentences but for a chance in billions: all are compared with the next one of theirs.
        ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *self._sizes])).tolist()
        self._file.flush()
        if not ends[-1]:
            return last
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            for one, other in zip(order[alike].tolist(), order[alike + 1].tolist(), strict=True):
                if text[ends[one] : ends[one + 1]] != text[ends[other] : ends[other + 1]]:
                    return _last_of(text, ends)
        return last

    def json_size(self) -> int:
        """Bytes of `json_pieces`."""
        lines = np.flatnonzero(self.last)
        sizes = np.concatenate([np.zeros(0, np.int32), *self._sizes])[lines]
        digits = sum(int(np.count_nonzero(lines >= 10**power)) for power in range(1, 19)) + len(lines)
        return 2 + int(sizes.sum(dtype=np.int64)) + digits + 4 * len(lines) + 2 * max(len(lines) - 1, 0)

    def json_pieces(self) -> Iterator[bytes]:
        """A JSON object from each sentence to the last line that it stands on, as a string; ASCII."""
        last, first, before = self.last, 0, b"{"
        self._file.seek(0)
        for sizes in self._sizes:
            for at in range(0, len(sizes), AT_ONCE):
                own = sizes[at : at + AT_ONCE]
                ends = np.cumsum(np.append(0, own)).tolist()
                text = self._file.read(ends[-1])
                pieces = [
                    b'%b: "%d"' % (text[start:end], first + k)
                    for k, (start, end) in enumerate(pairwise(ends))
                    if last[first + k]
                ]
                first += len(own)
                if pieces:
                    yield before + b", ".join(pieces)
                    before = b", "
        yield b"}" if before == b", " else b"{}"

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def _last_of(text: mmap.mmap, ends: list[int]) -> NDArray[np.bool_]:
    last = np.ones(len(ends) - 1, bool)
    seen: dict[bytes, int] = {}
    for k, (start, end) in enumerate(pairwise(ends)):
        if (before := seen.get(text[start:end])) is not None:
            last[before] = False
        seen[text[start:end]] = k
    return last
