"""Spans of words: all that may be mentions, and those that are worth comparing (Lee et al. 2017, sections 4 and 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans in the order of their first and then their last word."""

    starts: Tensor  # (S,) long, the first word, counted through the document
    widths: Tensor  # (S,) long, words less one

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> Tensor:
        """The last word. (S,)"""
        return self.starts + self.widths

    def pick(self, chosen: Tensor) -> "Spans":
        return Spans(self.starts[chosen], self.widths[chosen])


def list_spans(sentences: Tensor, max_width: int) -> Spans:
    """Every span of up to `max_width` words that lies in one sentence; `sentences` (N,) holds each word's number."""
    n = len(sentences)
    first = torch.arange(n, device=sentences.device)[:, None]  # (N, 1)
    last = first + torch.arange(max_width, device=sentences.device)  # (N, W)
    inside = (last < n) & (sentences[last.clamp(max=max(n - 1, 0))] == sentences[first])  # (N, W)
    starts, widths = inside.nonzero(as_tuple=True)  # (S,), (S,)
    return Spans(starts, widths)


def keep_spans(spans: Spans, scores: Tensor, limit: int) -> Tensor:
    """The places of the best-scored spans, in order: at most `limit`, and none that crosses a better one.

    Two spans cross when they overlap and neither holds the other.
    """
    order = scores.detach().argsort(descending=True, stable=True).cpu().numpy()
    kept = _without_crossing(spans.starts.cpu().numpy()[order], spans.ends.cpu().numpy()[order], limit)
    return torch.from_numpy(np.sort(order[kept])).to(scores.device)  # (M,)


def mark_clusters(spans: Spans, clusters: Sequence[Sequence[tuple[int, int]]], offset: int = 0) -> Tensor:
    """The true cluster of each span, from 1, and 0 for none; mentions end behind their last word. (S,)"""
    homes = {mention: k for k, cluster in enumerate(clusters, 1) for mention in cluster}
    pairs = zip((spans.starts + offset).tolist(), (spans.ends + offset + 1).tolist(), strict=True)
    return torch.tensor([homes.get(pair, 0) for pair in pairs], device=spans.starts.device, dtype=torch.long)


def _without_crossing(starts: NDArray[np.int64], ends: NDArray[np.int64], limit: int) -> list[int]:
    """The first spans of the list that do not cross one taken before."""
    taken: list[int] = []
    furthest: dict[int, int] = {}  # the last end of the spans taken that begin at a word
    earliest: dict[int, int] = {}  # the first start of those that end at a word
    for k, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if len(taken) == limit:
            break
        inside = range(start + 1, end + 1)
        if any(furthest.get(word, -1) > end for word in inside):
            continue  # one begins within this span and ends behind it
        if any(earliest.get(word, start) < start for word in range(start, end)):
            continue  # one begins before this span and ends within it
        taken.append(k)
        furthest[start] = max(end, furthest.get(start, -1))
        earliest[end] = min(start, earliest.get(end, start))
    return taken
