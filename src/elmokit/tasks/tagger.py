"""The plain sequence tagger: a mix of frozen layers, one bidirectional LSTM, a CRF (Peters et al. 2018, section 4).

Nothing but the encoder's vectors goes in, so that what comes out measures them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerStack
from elmokit.nn.crf import Allowed, Crf
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.tasks.labels import Scheme, legal_transitions


@dataclass(frozen=True, slots=True)
class TaggerConfig:
    """`labels` in the order of the network's outputs. Without a `scheme` any label may follow any other (POS)."""

    labels: tuple[str, ...]
    width: int  # of the encoder's vectors
    scheme: Scheme | None = "IOBES"
    hidden: int = 200  # LSTM cells in each direction
    dropout: float = 0.5  # on what goes into the LSTM and on what comes out
    mix: MixConfig = field(default_factory=MixConfig)

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or not self.labels:
            raise ConfigError(f"labels {self.labels}: expected at least one, and each once")

    def ids(self, tags: Sequence[str]) -> list[int]:
        """The numbers of one sentence's labels."""
        places = {label: k for k, label in enumerate(self.labels)}
        if unknown := [tag for tag in tags if tag not in places]:
            raise InputError(f"label {unknown[0]!r} is not among the tagger's: {', '.join(self.labels)}")
        return [places[tag] for tag in tags]


class TaggerNetwork(nn.Module):
    """Layers of a batch of sentences (none of them empty, boundaries taken off by the mix) to labels."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.config = config
        self.mix = ScalarMix(config.mix)
        self.dropout = nn.Dropout(config.dropout)
        self.lstm = nn.LSTM(config.width, config.hidden, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * config.hidden, len(config.labels))
        allowed = None
        if config.scheme is not None:
            allowed = Allowed(*map(torch.from_numpy, legal_transitions(config.labels, config.scheme)))
        self.crf = Crf(len(config.labels), allowed=allowed)

    def forward(self, stack: LayerStack) -> Tensor:
        """The score of each label at each word. (B, T, K)"""
        vectors = self.dropout(self.mix(stack))  # (B, T, D)
        lengths = stack.inner().mask.sum(dim=1).cpu()  # (B,)
        packed = pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1])
        scores: Tensor = self.output(self.dropout(hidden))
        return scores

    def loss(self, stack: LayerStack, labels: Tensor) -> Tensor:
        """The mean over sentences of -log p(labels), and the mix's penalty; `labels` (B, T) are 0 behind the end."""
        likelihood = self.crf.log_likelihood(self(stack), labels, stack.inner().mask)  # (B,)
        return self.mix.penalty() - likelihood.mean()

    @torch.no_grad()
    def tags(self, stack: LayerStack) -> list[list[str]]:
        """The best labels of each sentence."""
        mask = stack.inner().mask  # (B, T)
        path, _ = self.crf.decode(self(stack), mask)  # (B, T)
        lengths = mask.sum(dim=1).tolist()
        return [[self.config.labels[k] for k in row[:n]] for row, n in zip(path.tolist(), lengths, strict=True)]
