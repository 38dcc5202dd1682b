"""`Transformer`: BERT, GPT and any other encoder or decoder of the transformers library, word by word.

bert = Transformer.from_pretrained("google-bert/bert-base-cased")
bert.encode_layers("One vector per word.")                              # (13, 5, 768)
bert.encode_tokens("One vector per word.", layers="concat-last-four")   # (5, 3072)
"""

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from elmokit.encoders.batches import Turn
from elmokit.encoders.encoder import Context, Encoder, digest_of
from elmokit.encoders.transformer._library import load_transformer
from elmokit.encoders.transformer._pieces import PieceCutter, WindowPlan
from elmokit.encoders.transformer._rows import padded
from elmokit.encoders.transformer.runner import Subwords, TransformerRunner, layer_names
from elmokit.errors import InputError, WeightsError
from elmokit.text import Tokenizer, load_tokenizer

UNLIMITED = 512  # pieces per window for a model that says no limit


class Transformer(Encoder):
    """A network of the transformers library and its tokenizer; `Encoder` tells what may be given and the options.

    The words are elmokit's, cut by `tokenizer`, or the tokens given; each is cut into subwords by the model's own
    tokenizer, and its vector is made of theirs:

    subwords  "first" (the default; the BERT paper's choice), "last" (the default where only the left is seen: the first
              subword has not seen the rest of its word), "mean", or "first+last", side by side in twice the width
    window    subwords per run, special ones included; default the most that the model takes. Longer texts are cut into
              overlapping windows between words, and each word is taken from the one that shows it most context
    overlap   subwords that neighbouring windows share at most; default half a window

    A word that has no subwords (empty, or of characters that the tokenizer drops) keeps its place: as the tokenizer's
    piece for the unknown, or, where it has none, as a zero vector that the other words do not see. Layer 0 are the
    embeddings, which know the place in the window but no other word. Decoders such as GPT see the words to the left
    only; `context` says so, found by trying.
    """

    def __init__(
        self,
        network: nn.Module,
        subword_tokenizer: Any,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer = "english",
        subwords: Subwords | None = None,
        window: int | None = None,
        overlap: int | None = None,
        source: str = "",
    ) -> None:
        """A network in memory is used as it is and put into evaluation mode."""
        if subwords is not None and subwords not in get_args(Subwords):
            raise InputError(f"subwords {subwords!r} not understood; expected {', '.join(get_args(Subwords))}")
        cut = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        super().__init__(cut, device=device, dtype=dtype)
        self.network = network.eval()
        self.turn = Turn()
        self.cutter = PieceCutter(subword_tokenizer)
        self._source = source or type(network).__name__
        hidden, self._context = _try_out(network, self.cutter)
        self._depth, self._piece_width = len(hidden), hidden[0].shape[-1]
        if any(layer.shape != hidden[0].shape for layer in hidden):
            shapes = ", ".join(sorted({str(tuple(layer.shape)) for layer in hidden}))
            raise WeightsError(f"{self._source}: its layers differ in shape ({shapes}) and do not stack")
        self.subwords = subwords or ("last" if self._context == "left" else "first")
        self.plan = self._plan(window, overlap)
        self.placed()

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        revision: str | None = None,
        local_files_only: bool = False,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "float32",
        tokenizer: str | Tokenizer = "english",
        subwords: Subwords | None = None,
        window: int | None = None,
        overlap: int | None = None,
    ) -> "Transformer":
        """From a folder or a Hugging Face hub id. Weights must be safetensors; code in the repository is not run."""
        network, subword_tokenizer = load_transformer(source, revision=revision, local_files_only=local_files_only)
        return cls(
            network,
            subword_tokenizer,
            device=device,
            dtype=dtype,
            tokenizer=tokenizer,
            subwords=subwords,
            window=window,
            overlap=overlap,
            source=str(source),
        )

    def _plan(self, window: int | None, overlap: int | None) -> WindowPlan:
        most = longest_input(self.network, self.cutter.tokenizer)
        if window is not None and most is not None and window > most:
            raise InputError(f"windows of {window} subwords asked for, but {self._source} takes at most {most}")
        around = len(self.cutter.before) + len(self.cutter.after)
        room = (window or most or UNLIMITED) - around
        return WindowPlan(room, room // 2 if overlap is None else overlap)

    def _build(self, device: torch.device, dtype: torch.dtype) -> TransformerRunner:
        home = (device, dtype) == (self.device, self.dtype)
        with self.turn:  # its own numbers are never rounded in passing
            network = self.network if home else copy.deepcopy(self.network)
        return TransformerRunner(
            network.to(device=device, dtype=dtype),
            self.cutter,
            depth=self._depth,
            width=self._piece_width,
            subwords=self.subwords,
            plan=self.plan,
            left_only=self._context == "left",
            turn=self.turn,
        )

    @property
    def width(self) -> int:
        """D, the size of one layer's vector: the network's, or twice it for "first+last"."""
        return self._piece_width * (2 if self.subwords == "first+last" else 1)

    @property
    def layer_names(self) -> tuple[str, ...]:
        return layer_names(self._depth)

    @property
    def context(self) -> Context:
        """Both sides for encoders such as BERT, the left alone for decoders such as GPT."""
        return self._context

    @property
    def source(self) -> str:
        return self._source

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration, the tokenizer, all weights, and how subwords become words."""
        config: Any = self.network.config
        shape = {**config.to_dict(), "_name_or_path": ""}
        vocabulary = sorted(self.cutter.tokenizer.get_vocab().items())
        chosen = self.subwords, self.plan, self.cutter.before, self.cutter.after
        return digest_of((sorted(shape.items(), key=str), vocabulary, chosen), self.network.state_dict())

    def subwords_of(self, words: Sequence[str]) -> list[list[str]]:
        """The subwords that each word is made of; an empty list for a word that gets a zero vector."""
        return [list(self.cutter.tokenizer.convert_ids_to_tokens(list(ids))) for ids in self.cutter.cut(words)]

    def unknown(self, word: str) -> bool:
        """Whether nothing of the word is left but the piece for the unknown."""
        return self.cutter.unknown(word)


@torch.no_grad()
def _try_out(network: nn.Module, cutter: PieceCutter) -> tuple[list[Tensor], Context]:
    """All layers of a short text, and what they depend on: does a word feel a change of the word behind it?

    Configurations do not tell it reliably (GPT-2's does not call itself a decoder), a run does.
    """
    before, after, piece = list(cutter.before), list(cutter.after), cutter.sample
    other = next(k for k in range(len(cutter.tokenizer)) if k != piece and k not in cutter.tokenizer.all_special_ids)
    texts = [[*before, piece, piece, last, *after] for last in (piece, other)]
    hidden, begins = padded(network, texts, filler=cutter.filler)
    first, second = hidden[-1][[begin + len(before) for begin in begins]].double()  # (D,) each: the first word's
    felt = (first - second).abs().max() > 1e-4 * first.abs().max()  # rows of a batch may be rounded apart
    return hidden, "both" if felt else "left"


def longest_input(network: nn.Module, tokenizer: Any) -> int | None:
    """The most pieces that a model takes, as far as its parts say; None where none of them does."""
    said = [tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", None)]
    for name, table in network.named_modules():
        if isinstance(table, nn.Embedding) and "position" in name and table.padding_idx is not None:
            said.append(table.num_embeddings - table.padding_idx - 1)  # RoBERTa counts from behind its padding
    limits = [int(n) for n in said if n is not None and 0 < n < 1 << 30]
    return min(limits, default=None)
