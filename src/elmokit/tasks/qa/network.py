"""Bidirectional attention flow with self-attention (Clark and Gardner 2018, section 3.1, after Seo et al. 2017).

One GRU reads passage and question. Each word of the passage is joined with what it attends to in the question and with
what the question attends to in the passage; then, in a residual layer, with what it attends to elsewhere in the
passage. One GRU finds the answer's start and feeds another, which finds the end. ELMo enters at the input and at the
output of the first GRU (Peters et al. 2018, section 4).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.config import Share, Size, check, setting
from elmokit.nn.padded import SharedDropout, align, masked_softmax, run_recurrent
from elmokit.tasks.words import Side


@dataclass(frozen=True, slots=True)
class BidafConfig:
    """The published network for SQuAD."""

    hidden: Size = setting(90, "GRU cells in each direction; the layers between have twice the width")
    dropout: Share = setting(0.2, "dropout on the input of every layer, the same for all words of a text")

    def __post_init__(self) -> None:
        check(self)


class Ends(NamedTuple):
    """How likely each word is the first, and the last, of the answer: log probabilities, of next to none at padding."""

    start: Tensor  # (B, T)
    end: Tensor  # (B, T)


class Bidaf(nn.Module):
    """Word vectors of passages and questions to the ends of answers.

    `width` is that of the words, `output_width` that of what joins the first GRU's output: ELMo there, or 0.
    """

    def __init__(self, config: BidafConfig, *, width: int, output_width: int) -> None:
        super().__init__()
        H = config.hidden
        encoded = 2 * H + output_width
        self.dropout = SharedDropout(config.dropout)
        self.encoder = _gru(width, H)
        self.biattention = BiAttention(encoded)
        self.merge = nn.Linear(4 * encoded, 2 * H)
        self.modelling = _gru(2 * H, H)
        self.self_attention = SelfAttention(2 * H)
        self.self_merge = nn.Linear(3 * 2 * H, 2 * H)
        self.start_reader, self.start_score = _gru(2 * H, H), nn.Linear(2 * H, 1)
        self.end_reader, self.end_score = _gru(4 * H, H), nn.Linear(2 * H, 1)

    def forward(self, passage: Side, question: Side) -> Ends:
        mask = passage.mask
        lengths = mask.sum(dim=1)  # (B,)
        texts, questions = self._encode(passage), self._encode(question)  # (B, T, E), (B, S, E)
        attended = self.biattention(texts, questions, mask, question.mask)  # (B, T, 4 E)
        merged = torch.relu(self.merge(self.dropout(attended)))  # (B, T, 2 H)
        modelled = run_recurrent(self.modelling, self.dropout(merged), lengths)  # (B, T, 2 H)
        around = self.self_attention(self.dropout(modelled), mask)  # (B, T, 6 H)
        merged = merged + torch.relu(self.self_merge(self.dropout(around)))  # (B, T, 2 H)
        starts = run_recurrent(self.start_reader, self.dropout(merged), lengths)  # (B, T, 2 H)
        both = torch.cat([merged, starts], dim=-1)  # (B, T, 4 H)
        ends = run_recurrent(self.end_reader, self.dropout(both), lengths)  # (B, T, 2 H)
        return Ends(_log_softmax(self.start_score(starts), mask), _log_softmax(self.end_score(ends), mask))

    def _encode(self, side: Side) -> Tensor:
        encoded = run_recurrent(self.encoder, self.dropout(side.vectors), side.mask.sum(dim=1))  # (B, T, 2 H)
        joined: Tensor = self.dropout(torch.cat([encoded, side.at_output], dim=-1))  # (B, T, E)
        return joined


class Trilinear(nn.Module):
    """score(a, b) = u . a + v . b + w . (a * b), for every a with every b."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 1, bias=False)
        self.second = nn.Linear(width, 1, bias=False)
        self.product = nn.Parameter(torch.empty(width))
        nn.init.uniform_(self.product, -(width**-0.5), width**-0.5)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(B, S, D) and (B, T, D) to (B, S, T)"""
        scores: Tensor = self.first(a) + self.second(b).transpose(1, 2) + (a * self.product) @ b.transpose(1, 2)
        return scores


class BiAttention(nn.Module):
    """[h ; c ; h * c ; q * c]: c what a word of the passage attends to in the question, q what the question attends to.

    q is one vector for the whole passage, weighed by each word's best score with any word of the question.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.similarity = Trilinear(width)

    def forward(self, texts: Tensor, questions: Tensor, mask: Tensor, question_mask: Tensor) -> Tensor:
        """(B, T, D) and (B, S, D) with their masks to (B, T, 4 D)"""
        scores = self.similarity(texts, questions)  # (B, T, S)
        asked = align(scores, questions, question_mask)  # (B, T, D)
        lowest = torch.finfo(scores.dtype).min
        best = scores.masked_fill(~question_mask[:, None], lowest).amax(dim=2)  # (B, T)
        looked_for = masked_softmax(best, mask)[:, None] @ texts  # (B, 1, D)
        return torch.cat([texts, asked, texts * asked, looked_for * asked], dim=-1)


class SelfAttention(nn.Module):
    """[h ; c ; h * c]: c what a word attends to among the other words of its passage."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.similarity = Trilinear(width)

    def forward(self, texts: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to (B, T, 3 D)"""
        others = ~torch.eye(texts.shape[1], dtype=torch.bool, device=texts.device)  # (T, T)
        weights = masked_softmax(self.similarity(texts, texts), mask[:, None] & others)  # (B, T, T)
        around = weights @ texts  # (B, T, D)
        return torch.cat([texts, around, texts * around], dim=-1)


def best_spans(ends: Ends, *, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """The most likely span of at most `longest` words: its first word, its last word, its log probability. (B,) each"""
    longest = min(longest, ends.end.shape[1])
    far = nn.functional.pad(ends.end, (0, longest - 1), value=-torch.inf)  # (B, T + longest - 1)
    joint = ends.start[..., None] + far.unfold(1, longest, 1)  # (B, T, longest): by start and length
    score, place = joint.flatten(1).max(dim=1)  # (B,), (B,)
    start = place // longest
    return start, start + place % longest, score


def _gru(width: int, hidden: int) -> nn.GRU:
    return nn.GRU(width, hidden, batch_first=True, bidirectional=True)


def _log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """(B, T, 1) to (B, T); finite at padding, so that gradients are."""
    return torch.log_softmax(scores[..., 0].masked_fill(~mask, -1e4), dim=-1).masked_fill(~mask, -1e4)
