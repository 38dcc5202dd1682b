"""A transformers model in one place: pieces in windows through the network, and back to one vector per word."""

import copy
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.encoders.batches import BatchRunner, Turn
from elmokit.encoders.transformer._pieces import PieceCutter, WindowPlan, cut_windows
from elmokit.encoders.transformer._rows import Hidden, LongRow, cut_long_rows, cut_padded_rows, padded
from elmokit.layers import LayerStack
from elmokit.text import Sentence

Subwords = Literal["first", "last", "mean", "first+last"]


class Row(NamedTuple):
    """One window as the network sees it, and what is taken from it."""

    ids: list[int]  # special pieces included
    takes: list["Take"]


class Take(NamedTuple):
    """A piece's vector, times `weight`, is added to the vector of word `word` of the batch, at `part` of its width."""

    column: int
    word: int
    weight: float
    part: int


class TransformerRunner(BatchRunner):
    """Runs the network without gradients. A batch's windows run like with like; words are summed up as they come.

    Threads take turns with the network: some versions of the library change a model while it hands out its layers.
    """

    def __init__(
        self,
        network: nn.Module,
        cutter: PieceCutter,
        *,
        depth: int,
        width: int,
        subwords: Subwords,
        plan: WindowPlan,
        left_only: bool,
        turn: Turn,
    ) -> None:
        weight = next(network.parameters())
        super().__init__(weight.device, weight.dtype)
        self.network, self.cutter = network, cutter
        self.depth, self.width = depth, width  # of a piece's vectors
        self.subwords, self.plan, self.left_only, self.turn = subwords, plan, left_only, turn
        samples = [[*cutter.before, *[cutter.sample] * n, *cutter.after] for n in (1, 2, 2, 7) if n <= plan.room]
        with turn:
            self.long_row = None if left_only else LongRow.of(network, samples, filler=cutter.filler)
        self._twins, self._making = list[TransformerRunner](), Turn()

    def twins(self, count: int) -> Sequence[BatchRunner]:
        """On a CPU as many as asked for: each has the network's modules for itself, and the weights with the others."""
        with self._making:
            while self.device.type == "cpu" and len(self._twins) < count - 1:
                twin = copy.copy(self)
                weights = [*self.network.parameters(), *self.network.buffers()]
                twin.network = copy.deepcopy(self.network, {id(weight): weight for weight in weights})
                twin.turn, twin._twins, twin._making = Turn(), [], Turn()
                twin.long_row = LongRow(twin.network) if self.long_row else None
                self._twins.append(twin)
            return [self, *self._twins[: count - 1]]

    @torch.no_grad()  # not inference_mode: mixes are trained on these layers
    def stack(self, sentences: Sequence[Sentence]) -> LayerStack:
        lengths = torch.tensor([len(s) for s in sentences])  # (B,)
        columns = int(lengths.max()) if sentences else 0
        mask = torch.arange(columns)[None] < lengths[:, None]  # (B, T)
        rows = [row for b, s in enumerate(sentences) for row in self._rows(s, first_word=b * columns)]
        rows.sort(key=lambda row: len(row.ids))
        parts = 2 if self.subwords == "first+last" else 1
        shape = self.depth, mask.numel(), parts, self.width
        values = torch.zeros(shape, device=self.device, dtype=self.dtype)  # (L, B * T, parts, D)
        for batch in self._batches(rows):
            with self.turn:
                hidden = self._run([row.ids for row in batch])
            self._add(values, hidden, batch)
        joined = values.view(self.depth, *mask.shape, parts * self.width)  # (L, B, T, D)
        return LayerStack(joined, mask.to(self.device), layer_names(self.depth))

    def _rows(self, sentence: Sentence, *, first_word: int) -> Iterator[Row]:
        """The windows of a sentence whose words are numbered from `first_word`."""
        words = self.cutter.cut(sentence.tokens)
        counts = [len(pieces) for pieces in words]
        begins = [0, *accumulate(counts)]
        ids = [piece for pieces in words for piece in pieces]
        before, after = self.cutter.before, self.cutter.after
        takes = [
            Take(begins[w] + k, first_word + w, weight, part)
            for w, count in enumerate(counts)
            for k, weight, part in _chosen(self.subwords, count)
        ]  # in the order of the pieces
        at = 0
        for window in cut_windows(counts, self.plan, left_only=self.left_only):
            mine = []
            while at < len(takes) and takes[at].column < window.last:
                mine.append(takes[at]._replace(column=takes[at].column - window.begin + len(before)))
                at += 1
            if mine:
                yield Row([*before, *ids[window.begin : window.end], *after], mine)

    def _run(self, rows: list[list[int]]) -> Hidden:
        if self.long_row:
            return self.long_row(rows)
        return padded(self.network, rows, filler=self.cutter.filler, left_only=self.left_only)

    def _batches(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Rows come sorted by length; as many of them together as the device likes."""
        lengths = [len(row.ids) for row in rows]
        most, once = _runs_well(self.device)
        cut = cut_long_rows(lengths, most) if self.long_row else cut_padded_rows(lengths, most, once)
        for begin, end in cut:
            yield rows[begin:end]

    def _add(self, values: Tensor, hidden: Hidden, batch: list[Row]) -> None:
        takes = [
            (begin + take.column, take.word, take.weight, take.part)
            for begin, row in zip(hidden.begins, batch, strict=True)
            for take in row.takes
        ]
        place, word, weight, part = zip(*takes, strict=True)
        places, words, parts = (torch.tensor(n, device=self.device) for n in (place, word, part))
        weights = torch.tensor(weight, device=self.device, dtype=self.dtype)[:, None]  # (N, 1)
        for total, layer in zip(values, hidden.layers, strict=True):  # layer by layer: all at once would be there twice
            total.index_put_((words, parts), layer[places] * weights, accumulate=True)


def _runs_well(device: torch.device) -> tuple[int, int]:
    """Positions that are best run at once, and how many positions take as long as it takes to begin a run."""
    if device.type == "cuda":
        return 32_768, 32_768
    threads = torch.get_num_threads()  # each of them reads all weights; more positions do not fit into their caches
    return min(max(256 * threads, 1_024), 4_096), 32 * threads


def layer_names(depth: int) -> tuple[str, ...]:
    return ("embeddings", *(f"layer{k}" for k in range(1, depth)))


def _chosen(subwords: Subwords, count: int) -> list[tuple[int, float, int]]:
    """Which of a word's pieces its vector is made of: (piece, weight, part). Nothing for a word without pieces."""
    if not count:
        return []
    match subwords:
        case "first":
            return [(0, 1.0, 0)]
        case "last":
            return [(count - 1, 1.0, 0)]
        case "first+last":
            return [(0, 1.0, 0), (count - 1, 1.0, 1)]
    return [(k, 1.0 / count, 0) for k in range(count)]
