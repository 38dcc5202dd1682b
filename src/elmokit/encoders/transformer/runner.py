"""A transformers model in one place: pieces in windows through the network, and back to one vector per word."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from elmokit.encoders.batches import BatchRunner, Turn
from elmokit.encoders.places import batch_budget
from elmokit.encoders.transformer._pieces import PieceCutter, WindowPlan, cut_windows
from elmokit.errors import WeightsError
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
                hidden = hidden_layers(self.network, [row.ids for row in batch], filler=self.cutter.filler)
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

    def _batches(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Rows come sorted by length; as many of them together as the device likes."""
        budget = batch_budget(None, self.device)
        batch: list[Row] = []
        for row in rows:
            if batch and (len(batch) + 1) * len(row.ids) > budget:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch

    def _add(self, values: Tensor, hidden: tuple[Tensor, ...], batch: list[Row]) -> None:
        takes = [(r, *take) for r, row in enumerate(batch) for take in row.takes]
        row, column, word, weight, part = zip(*takes, strict=True)
        rows, columns, words, parts = (torch.tensor(n, device=self.device) for n in (row, column, word, part))
        weights = torch.tensor(weight, device=self.device, dtype=self.dtype)[:, None]  # (N, 1)
        for total, layer in zip(values, hidden, strict=True):  # layer by layer: all at once would be there twice
            total.index_put_((words, parts), layer[rows, columns] * weights, accumulate=True)


def hidden_layers(network: nn.Module, rows: list[list[int]], *, filler: int) -> tuple[Tensor, ...]:
    """All layers of rows of ids, the embeddings first. L times (b, s, D)"""
    longest = max(map(len, rows))
    device = next(network.parameters()).device
    ids = torch.tensor([row + [filler] * (longest - len(row)) for row in rows], device=device)  # (b, s)
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)  # (b, s)
    made: Any = network(input_ids=ids, attention_mask=real, output_hidden_states=True, return_dict=True)
    if made.hidden_states is None:
        raise WeightsError(f"{type(network).__name__} does not hand out its layers, so it cannot be used here")
    return tuple(made.hidden_states)


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
