"""What every task network reads of its words: a vector per word, its characters, and the layers of an encoder.

ELMo is concatenated to the word features at the input of a network, to the output of its contextual layer, or to both,
each place with a mix of its own (Peters et al. 2018, section 3.3).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.chars import ByteCodec
from elmokit.config import Amount, Count, Pairs, Range, Share, SizeOrNone
from elmokit.encoders.features import mix_layers, mix_penalty
from elmokit.errors import ConfigError, InputError
from elmokit.layers import LayerChoice, LayerStack, Vectors
from elmokit.nn.char_cnn import TokenEncoder, TokenEncoderConfig
from elmokit.nn.mix import MixConfig, ScalarMix
from elmokit.text import Sentence

PAD, UNKNOWN = 0, 1  # word ids
SPECIAL = 2  # ids before the first word's

ElmoAt = Literal["none", "input", "output", "both"]
WordLength = Annotated[int, Range(3, 10_000)]


@dataclass(frozen=True, slots=True, eq=False)
class WordBatch:
    """Sentences as numbers. Characters stand once per distinct word of the batch; layers have no boundaries."""

    ids: Tensor  # (B, T) long, 0 at padding
    mask: Tensor  # (B, T) bool, True at words, which come first
    characters: Tensor | None = None  # (U, C) int, row 0 for padding
    places: Tensor | None = None  # (B, T) long, the row of each position
    stack: LayerStack | None = None  # (L, B, T, D)

    @property
    def lengths(self) -> Tensor:
        """Words of each sentence. (B,)"""
        return self.mask.sum(dim=1)


class WordVocabulary:
    """Words with a vector of their own: 0 is padding, 1 any other word. One not there is looked for in lower case."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self.places = {word: k for k, word in enumerate(self.words, SPECIAL)}
        if len(self.places) != len(self.words):
            raise InputError("a word stands twice in the vocabulary; expected each once")

    def __len__(self) -> int:
        """Ids in all, padding and unknown included."""
        return len(self.words) + SPECIAL

    @classmethod
    def of(cls, sentences: Iterable[Sentence], *, min_count: int = 1) -> "WordVocabulary":
        """The words of training sentences in lower case, the most frequent first: their case is for the characters."""
        counts = Counter(word.lower() for sentence in sentences for word in sentence.tokens)
        kept = [(word, n) for word, n in counts.items() if n >= min_count]
        return cls(word for word, _ in sorted(kept, key=lambda pair: (-pair[1], pair[0])))

    def id(self, word: str) -> int:
        found = self.places.get(word)
        return self.places.get(word.lower(), UNKNOWN) if found is None else found


@dataclass(frozen=True, slots=True)
class WordFeaturesConfig:
    """A width or number of 0 leaves that part out."""

    n_words: Count = 0  # ids of the vocabulary
    word_dim: SizeOrNone = 100
    train_words: bool = True  # False: the word vectors stay as they were given
    word_dropout: Share = 0.0  # in training, how often a word is taken for an unknown one
    char_dim: SizeOrNone = 16
    char_filters: Pairs = ((3, 128),)  # (width, how many)
    max_characters: WordLength = 50  # bytes of a word that are read, its two boundary marks included
    dropout: Share = 0.0  # on the word and character vectors
    elmo_depth: Annotated[int, Range(0, 1000)] = 0  # layers of the encoder
    elmo_width: SizeOrNone = 0  # of each of them
    elmo_at: ElmoAt = "none"
    elmo_layers: str = "mix"  # in the grammar of elmokit.layers; a mix is trained, all else is fixed
    elmo_dropout: Share = 0.5
    elmo_l2: Amount = 0.001  # on the weights of the mix

    def __post_init__(self) -> None:
        if self.elmo_at not in ("none", "input", "output", "both"):
            raise ConfigError(f"elmo_at is {self.elmo_at!r}; expected none, input, output or both")
        if self.elmo_at != "none" and not (self.elmo_depth and self.elmo_width):
            raise ConfigError(f"elmo_at is {self.elmo_at!r}, but no encoder was given (elmo_depth, elmo_width)")
        if LayerChoice.parse(self.elmo_layers).kind == "all":
            raise ConfigError("elmo_layers 'all' keeps the layers apart; use 'mix', 'concat:...' or a single layer")
        if not (self.word_dim or self.char_dim or self.elmo_at in ("input", "both")):
            raise ConfigError("nothing is read of a word: word_dim and char_dim are 0 and no encoder is at the input")

    @property
    def elmo_size(self) -> int:
        """Of the vector that its layers become."""
        return LayerChoice.parse(self.elmo_layers).width(self.elmo_depth, self.elmo_width)


class Side(NamedTuple):
    """One of the texts of each example of a batch, as a network reads it."""

    vectors: Tensor  # (B, T, width)
    at_output: Tensor  # (B, T, output_width)
    mask: Tensor  # (B, T) bool


class WordFeatures(nn.Module):
    """[word vector ; character CNN ; ELMo] for the input of a network, and ELMo alone for a place further up."""

    anchor: Tensor

    def __init__(self, config: WordFeaturesConfig) -> None:
        super().__init__()
        self.config = config
        self.words: nn.Embedding | None = None
        self.characters: TokenEncoder | None = None
        if config.word_dim:
            self.words = nn.Embedding(max(config.n_words, SPECIAL), config.word_dim, padding_idx=PAD)
            reach = math.sqrt(3 / config.word_dim)
            nn.init.uniform_(self.words.weight, -reach, reach)
            self.words.weight.requires_grad_(config.train_words)
        if config.char_dim:
            n_filters = sum(n for _, n in config.char_filters)
            self.characters = TokenEncoder(
                TokenEncoderConfig(
                    char_dim=config.char_dim,
                    max_characters=config.max_characters,
                    filters=config.char_filters,
                    n_highway=0,
                    projection_dim=n_filters,
                    project=False,
                )
            )
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("anchor", torch.zeros(()), persistent=False)  # knows where the module is
        self.at_input = self._elmo("input")
        self.above = self._elmo("output")

    def _elmo(self, place: ElmoAt) -> nn.ModuleDict | None:
        """One vector per word of the encoder's layers, where it is read there; named as in saved models."""
        config = self.config
        if config.elmo_at not in (place, "both"):
            return None
        mix = MixConfig(l2=config.elmo_l2, dropout=config.elmo_dropout)
        made = mix_layers(config.elmo_layers, depth=config.elmo_depth, width=config.elmo_width, mix=mix)
        return nn.ModuleDict({"mix": made})

    @property
    def width(self) -> int:
        """D of `forward`."""
        characters = 0 if self.characters is None else self.characters.config.n_features
        return self.config.word_dim + characters + (0 if self.at_input is None else self.config.elmo_size)

    @property
    def output_width(self) -> int:
        """D of `at_output`; 0 where ELMo is not there."""
        return 0 if self.above is None else self.config.elmo_size

    @property
    def mixes(self) -> dict[str, ScalarMix]:
        """The trained mixes by place: "input", "output"."""
        places = {"input": self.at_input, "output": self.above}
        found = {place: part["mix"] for place, part in places.items() if part is not None}
        return {place: mix for place, mix in found.items() if isinstance(mix, ScalarMix)}

    def penalty(self) -> Tensor:
        """The L2 terms of the mixes, to be added to the loss."""
        return mix_penalty(self.mixes.values(), like=self.anchor)

    def forward(self, words: WordBatch) -> Tensor:
        """(B, T, width), zero at padding."""
        parts: list[Tensor] = []
        if self.words is not None:
            parts.append(self.words(self._ids(words)))  # (B, T, word_dim)
        if self.characters is not None:
            if words.characters is None or words.places is None:
                raise InputError("a batch without characters was given to features that read them")
            parts.append(self.characters(words.characters)[words.places])  # (B, T, n_filters)
        if parts:
            parts = [self.dropout(torch.cat(parts, dim=-1))]
        if self.at_input is not None:
            parts.append(self.at_input["mix"](_layers(words)))  # (B, T, D)
        return torch.cat(parts, dim=-1) * words.mask[..., None]

    def at_output(self, words: WordBatch) -> Tensor:
        """(B, T, output_width), zero at padding; of width 0 where ELMo is not at the output."""
        if self.above is None:
            return self.anchor.new_zeros(*words.ids.shape, 0)
        found: Tensor = self.above["mix"](_layers(words))
        return found * words.mask[..., None]

    def side(self, words: WordBatch) -> Side:
        """Both of them, with the mask."""
        return Side(self(words), self.at_output(words), words.mask)

    @torch.no_grad()
    def load_vectors(self, rows: Vectors) -> None:
        """The vectors of all words of the vocabulary, in its order; unknown words get their mean."""
        if self.words is None or rows.shape != (len(self.words.weight) - SPECIAL, self.config.word_dim):
            expected = None if self.words is None else (len(self.words.weight) - SPECIAL, self.config.word_dim)
            raise InputError(f"word vectors of shape {rows.shape} given, expected {expected}")
        given = torch.from_numpy(np.ascontiguousarray(rows))
        self.words.weight[SPECIAL:] = given.to(self.words.weight)
        self.words.weight[UNKNOWN] = given.mean(dim=0).to(self.words.weight)
        self.words.weight[PAD] = 0

    def _ids(self, words: WordBatch) -> Tensor:
        if not (self.training and self.config.word_dropout):
            return words.ids
        lost = torch.rand(words.ids.shape, device=words.ids.device) < self.config.word_dropout  # (B, T)
        return words.ids.masked_fill(lost & words.mask, UNKNOWN)


class WordReader:
    """Sentences to `WordBatch`es for features of one configuration."""

    def __init__(self, vocabulary: WordVocabulary, config: WordFeaturesConfig) -> None:
        self.vocabulary, self.config = vocabulary, config
        self.codec = ByteCodec(config.max_characters, boundary_tokens=False) if config.char_dim else None

    def batch(
        self,
        sentences: Sequence[Sentence],
        *,
        stack: LayerStack | None = None,
        device: torch.device | str = "cpu",
    ) -> WordBatch:
        """The sentences in the order given; `stack` holds their layers, without boundaries.

        There is a position at least, if only of padding: recurrent layers cannot read nothing at all.
        """
        T = max((len(sentence) for sentence in sentences), default=0) or 1
        ids = np.zeros((len(sentences), T), dtype=np.int64)  # (B, T)
        places = np.zeros((len(sentences), T), dtype=np.int64)  # (B, T)
        types: dict[str, int] = {"": 0}
        for row, place, sentence in zip(ids, places, sentences, strict=True):
            row[: len(sentence)] = [self.vocabulary.id(word) for word in sentence.tokens]
            place[: len(sentence)] = [types.setdefault(word, len(types)) for word in sentence.tokens]
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        mask = torch.from_numpy(np.arange(T) < lengths[:, None]).to(device)  # (B, T)
        if stack is not None and tuple(stack.values.shape[1:3]) != ids.shape:
            raise InputError(f"layers of {tuple(stack.values.shape[1:3])} positions for words of {ids.shape}")
        characters = None
        if self.codec is not None:
            rows = self.codec.encode(list(types))  # (U, C)
            characters = torch.from_numpy(rows).to(device)
        return WordBatch(
            torch.from_numpy(ids).to(device),
            mask,
            characters,
            None if characters is None else torch.from_numpy(places).to(device),
            stack,
        )


def describe_mixes(mixes: Mapping[str, ScalarMix]) -> dict[str, Any]:
    """Layer weights (after the softmax) and gamma of each place, as plain numbers."""
    return {place: {"shares": mix.shares.tolist(), "gamma": float(mix.gamma.detach())} for place, mix in mixes.items()}


def _layers(words: WordBatch) -> LayerStack:
    if words.stack is None:
        raise InputError("a batch without layers was given to features that read an encoder's")
    return words.stack
