"""TagLM, the forerunner of ELMo (Peters et al. 2017): a language model's top layer inside a tagger.

    h1 = biLSTM_1([characters ; word vector])
    h2 = biLSTM_2([h1 ; LM forward top ; LM backward top])     no mix: the top layer as it is
    a CRF over a dense layer of h2

Without an encoder it is the plain two-layer tagger.
"""

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.tasks.recurrent import SharedDropout, run_recurrent
from elmokit.tasks.tagging.network import CrfTagger, TaggerConfig
from elmokit.tasks.words import WordBatch


class TaglmNetwork(CrfTagger):
    """The encoder's top layer joins the output of the first of two LSTMs."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        if config.layers != 2 or config.features.elmo_at not in ("none", "output"):
            raise ConfigError(
                f"TagLM with {config.layers} layers and elmo_at={config.features.elmo_at!r}; it has 2 layers, and the "
                "language model joins the output of the first (elmo_at='output') or is left out ('none')"
            )
        both = 2 * config.hidden
        self.first = nn.LSTM(self.features.width, config.hidden, batch_first=True, bidirectional=True)
        self.second = nn.LSTM(both + self.features.output_width, config.hidden, batch_first=True, bidirectional=True)
        self.dropout = SharedDropout(config.dropout)
        self.output = nn.Linear(both, len(config.labels))

    def forward(self, words: WordBatch) -> Tensor:
        """The score of each label at each word. (B, T, K)"""
        first = run_recurrent(self.first, self.dropout(self.features(words)), words.lengths)  # (B, T, 2 H)
        joined = torch.cat([self.dropout(first), self.features.at_output(words)], dim=-1)  # (B, T, 2 H + 2 P)
        second = run_recurrent(self.second, joined, words.lengths)  # (B, T, 2 H)
        scores: Tensor = self.output(self.dropout(second))
        return scores
