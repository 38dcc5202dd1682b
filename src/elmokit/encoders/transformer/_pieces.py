"""Words to the pieces (subwords) of a transformers tokenizer, each word on its own, so that none loses its place.

Tokenizers clean text: some drop control and zero-width characters, some drop what they do not know, and a word of
nothing else has no piece left. Words are therefore cut one by one: whatever becomes of a word, it is known which word
it was, and a word seen before need not be cut again.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from elmokit.encoders.batches import Turn
from elmokit.errors import WeightsError
from elmokit.formats.streams import mend

MOST_WORDS = 1 << 17  # remembered; then all are forgotten
Pieces = tuple[int, ...]


class PieceCutter:
    """Words to ids. `before` and `after` are the special pieces around a text, `filler` pads a batch.

    A word without pieces gets `nothing`: the tokenizer's piece for the unknown. Where it has none of its own (GPT-2's
    is its mark for the end of a text, which would cut off the words before), that is no piece, and the vector is zero.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        # Byte-level tokenizers write the space before a word into its first piece; without it, it is another word.
        self.space = " " if _is_byte_level(tokenizer) else ""
        self.known: dict[str, Pieces] = {}
        self.turn = Turn()  # the library's tokenizers refuse to work for two threads at once
        self.before, self.sample, self.after = self._around()
        others = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, *self.before, *self.after}
        unknown: int | None = tokenizer.unk_token_id
        self.nothing: Pieces = () if unknown is None or unknown in others else (unknown,)
        self.filler: int = tokenizer.pad_token_id or 0

    def cut(self, words: Iterable[str]) -> list[Pieces]:
        """The pieces of each word."""
        words = list(words)
        with self.turn:
            if len(self.known) > MOST_WORDS:
                self.known.clear()
            missing = list({word: None for word in words if word not in self.known})
            if missing:
                for word, ids in zip(missing, self._ids([self.space + mend(word)[0] for word in missing]), strict=True):
                    self.known[word] = tuple(ids) if word and ids else self.nothing
            return [self.known[word] for word in words]

    def unknown(self, word: str) -> bool:
        """Whether nothing of the word is left but the piece for the unknown."""
        (pieces,) = self.cut([word])
        return all(piece in self.nothing for piece in pieces)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        # Said explicitly: some tokenizers' files ask for truncation. Verbose would warn of long words, which are fine.
        made = self.tokenizer(texts, add_special_tokens=False, truncation=False, padding=False, verbose=False)
        return list(made["input_ids"])

    def _around(self) -> tuple[Pieces, int, Pieces]:
        """The special pieces around a text, found by looking at one, and a piece that is not special."""
        for word in ("a", "e", "1", ".", *self.tokenizer.get_vocab()):
            text = self.space + word
            (inner,) = self._ids([text])
            if not inner or set(inner) & set(self.tokenizer.all_special_ids):
                continue
            whole = list(self.tokenizer(text, truncation=False, padding=False)["input_ids"])
            for at in range(len(whole) - len(inner) + 1):
                if whole[at : at + len(inner)] == inner:
                    return tuple(whole[:at]), inner[0], tuple(whole[at + len(inner) :])
        raise WeightsError("its tokenizer makes no pieces of any word of its own vocabulary; the files do not belong")


def _is_byte_level(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a tokenizer written in Python
        return hasattr(tokenizer, "add_prefix_space")
    return "ByteLevel" in repr(backend.pre_tokenizer)
