"""AllenNLP's way from tokens to character ids: `ELMoCharacterMapper`, `ELMoTokenCharactersIndexer`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from elmokit.chars import BOS, EOS, PAD, SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, ByteCodec
from elmokit.compat.allennlp.source import ConfigurationError

MAX_CHARACTERS = 50  # AllenNLP knew no other limit
NEW_KEY = "elmo_tokens"  # from AllenNLP 1.0 on


class _OnTheClassToo:
    """A method that programs for AllenNLP 0.4 to 0.8 call on the class, and later ones on an object."""

    def __get__(self, mapper: "ELMoCharacterMapper | None", owner: "type[ELMoCharacterMapper]") -> Any:
        return (owner() if mapper is None else mapper).convert


class ELMoCharacterMapper:
    """A word to 50 character ids. `tokens_to_add` gives words an id of their own, before the shift by one."""

    max_word_length = MAX_CHARACTERS
    beginning_of_sentence_character = SENTENCE_BEGIN - 1  # these are before the shift by one
    end_of_sentence_character = SENTENCE_END - 1
    beginning_of_word_character = WORD_BEGIN - 1
    end_of_word_character = WORD_END - 1
    padding_character = PAD - 1
    bos_token, eos_token = BOS, EOS
    beginning_of_sentence_characters: ClassVar[list[int]] = (ByteCodec(MAX_CHARACTERS).begin - 1).tolist()
    end_of_sentence_characters: ClassVar[list[int]] = (ByteCodec(MAX_CHARACTERS).end - 1).tolist()

    def __init__(self, tokens_to_add: Mapping[str, int] | None = None) -> None:
        self.tokens_to_add = dict(tokens_to_add or {})

    convert_word_to_char_ids = _OnTheClassToo()

    def convert(self, word: str) -> list[int]:
        """The ids, shifted by one: 0 is a masked position."""
        row: list[int] = ByteCodec(MAX_CHARACTERS).encode([word])[0].tolist()
        if word not in self.tokens_to_add:
            return row
        ids = [WORD_BEGIN, self.tokens_to_add[word] + 1, WORD_END]
        return ids + [PAD] * (MAX_CHARACTERS - len(ids))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoCharacterMapper) and self.tokens_to_add == other.tokens_to_add

    __hash__ = None  # type: ignore[assignment]


class ELMoTokenCharactersIndexer:
    """Tokens, AllenNLP's (with `.text`) or strings, to character ids and padded tensors of them.

    It takes the calls of AllenNLP 0.x, with an `index_name`, and those of 1.0 and later, without.
    """

    def __init__(
        self,
        namespace: str = "elmo_characters",
        tokens_to_add: Mapping[str, int] | None = None,
        token_min_padding_length: int = 0,
    ) -> None:
        self._namespace = namespace
        self._token_min_padding_length = token_min_padding_length
        self._mapper = ELMoCharacterMapper(tokens_to_add)

    def count_vocab_items(self, token: Any, counter: Any) -> None:
        """Nothing: characters need no vocabulary."""

    def tokens_to_indices(
        self, tokens: Sequence[Any], vocabulary: Any = None, index_name: str = NEW_KEY
    ) -> dict[str, list[list[int]]]:
        """{index_name: 50 ids for each token}."""
        return {index_name: [self._mapper.convert(_text(token)) for token in tokens]}

    def get_empty_token_list(self) -> dict[str, list[Any]]:
        return {NEW_KEY: []}

    def get_padding_lengths(self, token: Any) -> dict[str, int]:
        """Of one token's ids (0.x): nothing to pad. Of a dictionary of them (1.0): how many tokens each has."""
        if not isinstance(token, Mapping):
            return {}
        return {key: max(len(ids), self._token_min_padding_length) for key, ids in token.items()}

    def get_token_min_padding_length(self) -> int:
        return self._token_min_padding_length

    def get_keys(self, index_name: str) -> list[str]:
        return [index_name]

    def pad_token_sequence(
        self,
        tokens: Mapping[str, Sequence[Sequence[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int] | None = None,
    ) -> dict[str, list[list[int]]]:
        """Each list cut or filled with rows of zeros to its number of tokens."""
        return {key: _padded(ids, desired_num_tokens[key]) for key, ids in tokens.items()}

    def as_padded_tensor(
        self,
        tokens: Mapping[str, Sequence[Sequence[int]]],
        desired_num_tokens: Mapping[str, int],
        padding_lengths: Mapping[str, int] | None = None,
    ) -> dict[str, Tensor]:
        """The same as tensors (T, 50), int64."""
        padded = self.pad_token_sequence(tokens, desired_num_tokens)
        return {key: torch.tensor(ids, dtype=torch.int64).reshape(-1, MAX_CHARACTERS) for key, ids in padded.items()}

    def as_padded_tensor_dict(
        self, tokens: Mapping[str, Sequence[Sequence[int]]], padding_lengths: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """What `as_padded_tensor` became in AllenNLP 1.0."""
        return self.as_padded_tensor(tokens, padding_lengths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ELMoTokenCharactersIndexer) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


def _padded(ids: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    rows = [list(row) for row in ids[:length]]
    return rows + [[0] * MAX_CHARACTERS for _ in range(length - len(rows))]


def _text(token: Any) -> str:
    text = getattr(token, "text", token)
    if not isinstance(text, str):
        raise ConfigurationError(
            f"ELMoTokenCharactersIndexer needs a tokenizer that retains text; got {token!r}, expected a string or a "
            "token with a text"
        )
    return text
