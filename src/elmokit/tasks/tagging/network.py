"""The sequence tagger: word features, bidirectional LSTMs, a CRF (Peters et al. 2018, section 4; Lample et al. 2016).

With a label scheme, sequences that it cannot write are neither learnt nor predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmokit.config import Depth, Share, Size, check, setting
from elmokit.errors import ConfigError, InputError
from elmokit.nn.crf import Allowed, Crf
from elmokit.nn.padded import SharedDropout, run_recurrent
from elmokit.tasks.labels import Scheme, check_labels, legal_transitions, read_spans
from elmokit.tasks.task import Batch, Network
from elmokit.tasks.words import WordBatch, WordFeatures, WordFeaturesConfig
from elmokit.text import Sentence


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence and the labels of its words; those of spans in one scheme, whatever the file's was."""

    sentence: Sentence
    tags: tuple[str, ...] | None = None
    scheme: Scheme | None = None  # None: labels of words, not of spans

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        return (self.sentence,)


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A labelled stretch of the text: `text` stands at characters `start` to `end` (not included)."""

    start: int
    end: int
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """The labels that a network gives to the words of a sentence."""

    sentence: Sentence
    tags: tuple[str, ...]
    scheme: Scheme | None

    @property
    def spans(self) -> list[TextSpan]:
        """Labelled stretches of the text that the sentence was cut from; without a scheme, every word is one."""
        places, text, start = self.sentence.places, self.sentence.as_text, self.sentence.start
        if self.scheme is None:
            found = [(k, k + 1, tag) for k, tag in enumerate(self.tags)]
        else:
            found = [(span.start, span.end, span.type) for span in read_spans(self.tags)]
        bounds = [(places[a][0], places[b - 1][1], type) for a, b, type in found]
        return [TextSpan(a, b, type, text[a - start : b - start]) for a, b, type in bounds]


@dataclass(frozen=True, slots=True)
class TaggerConfig:
    """`labels` in the order of the network's outputs. Without a `scheme` any label may follow any other (POS)."""

    labels: tuple[str, ...]
    features: WordFeaturesConfig
    scheme: Scheme | None = "IOBES"
    hidden: Size = 200  # LSTM cells in each direction
    lstm_layers: Depth = setting(2, "number of LSTM layers", was="layers")
    dropout: Share = 0.25  # on what goes into each LSTM and on what comes out

    def __post_init__(self) -> None:
        check(self)
        check_labels(self.labels)

    def ids(self, tags: Sequence[str]) -> list[int]:
        """The numbers of one sentence's labels."""
        places = {label: k for k, label in enumerate(self.labels)}
        if unknown := [tag for tag in tags if tag not in places]:
            raise InputError(f"label {unknown[0]!r} is not among the tagger's: {', '.join(self.labels)}")
        return [places[tag] for tag in tags]


class CrfTagger(Network[TaggedExample, TaggedSentence]):
    """Anything that scores labels word by word, under a CRF. Subclasses have `forward`: words to (B, T, K)."""

    Config = TaggerConfig
    config: TaggerConfig

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__()
        self.config = config
        self.features = WordFeatures(config.features)
        allowed = None
        if config.scheme is not None:
            allowed = Allowed(*map(torch.from_numpy, legal_transitions(config.labels, config.scheme)))
        self.crf = Crf(len(config.labels), allowed=allowed)

    def loss(self, batch: Batch[TaggedExample]) -> Tensor:
        words = batch.words[0]
        labels = torch.zeros(words.ids.shape, dtype=torch.long)  # (B, T), 0 behind the end; moved as a whole
        for row, example in zip(labels, batch.examples, strict=True):
            if example.tags is None:
                raise InputError("a sentence without labels cannot be trained on")
            row[: len(example.tags)] = torch.tensor(self.config.ids(example.tags))
        likelihood = self.crf.log_likelihood(self(words), labels.to(words.ids.device), words.mask)  # (B,)
        return self.features.penalty() - likelihood.mean()

    @torch.no_grad()
    def predict(self, batch: Batch[TaggedExample]) -> list[TaggedSentence]:
        words = batch.words[0]
        path, _ = self.crf.decode(self(words), words.mask)  # (B, T)
        found = []
        for example, row in zip(batch.examples, path.tolist(), strict=True):
            tags = tuple(self.config.labels[k] for k in row[: len(example.sentence)])
            found.append(TaggedSentence(example.sentence, tags, self.config.scheme))
        return found


class TaggerNetwork(CrfTagger):
    """LSTMs one above the other; ELMo at the output joins what comes out of the last."""

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        widths = [self.features.width] + [2 * config.hidden] * (config.lstm_layers - 1)
        self.lstms = nn.ModuleList(
            nn.LSTM(width, config.hidden, batch_first=True, bidirectional=True) for width in widths
        )
        self.dropout = SharedDropout(config.dropout)
        self.output = nn.Linear(2 * config.hidden + self.features.output_width, len(config.labels))

    def forward(self, words: WordBatch) -> Tensor:
        """The score of each label at each word. (B, T, K)"""
        x = self.features(words)  # (B, T, D)
        for lstm in self.lstms:
            assert isinstance(lstm, nn.LSTM)
            x = run_recurrent(lstm, self.dropout(x), words.lengths)  # (B, T, 2 H)
        scores: Tensor = self.output(torch.cat([self.dropout(x), self.features.at_output(words)], dim=-1))
        return scores


class TaglmNetwork(CrfTagger):
    """TagLM, the forerunner of ELMo (Peters et al. 2017): a language model's top layer inside a tagger.

        h1 = biLSTM_1([characters ; word vector])
        h2 = biLSTM_2([h1 ; LM forward top ; LM backward top])     no mix: the top layer as it is
        a CRF over a dense layer of h2

    Without an encoder it is the plain two-layer tagger.
    """

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        if config.lstm_layers != 2 or config.features.elmo_at not in ("none", "output"):
            raise ConfigError(
                f"TagLM with {config.lstm_layers} layers and elmo_at={config.features.elmo_at!r}; it has 2 layers, and "
                "the language model joins the output of the first (elmo_at='output') or is left out ('none')"
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
