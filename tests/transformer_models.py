"""Tiny transformers models with random weights, and tokenizers made on the spot: nothing is fetched."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDPIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", "play", "##ing", "##s"]
CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'"
LIMIT = 32


class Model(NamedTuple):
    """A network and its tokenizer, in memory and in a folder."""

    network: Any
    tokenizer: Any

    def save(self, folder: Path) -> Path:
        self.network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        return folder


def bert(*, limit: int = LIMIT, layers: int = 4) -> Model:
    """A BERT with a WordPiece tokenizer that lower-cases and drops control characters, as the real one does."""
    vocabulary = {piece: k for k, piece in enumerate([*WORDPIECES, *CHARACTERS, *(f"##{c}" for c in CHARACTERS)])}
    tokenizer = _tokenizer("Bert", vocabulary, limit=limit)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=limit,
        initializer_range=0.5,  # so that words and contexts differ visibly
    )
    return Model(transformers.BertModel(config).eval(), tokenizer)


def gpt(*, limit: int = LIMIT) -> Model:
    """A GPT-2 with a byte-level tokenizer, which knows every text and has no piece for the unknown."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {
        piece: k for k, piece in enumerate(["<|endoftext|>", *alphabet, "Ġt", "he", "Ġthe", "at", "in", "ing"])
    }
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("a", "t"), ("i", "n"), ("in", "g")]
    tokenizer = _tokenizer("GPT2", vocabulary, merges, limit=limit)
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=len(vocabulary), n_embd=12, n_layer=3, n_head=2, n_positions=limit, initializer_range=0.5
    )
    return Model(transformers.GPT2Model(config).eval(), tokenizer)


def _tokenizer(
    kind: str, vocabulary: dict[str, int], merges: list[tuple[str, str]] | None = None, *, limit: int
) -> Any:
    """The library's own; its versions before 5 take files only."""
    made = getattr(transformers, f"{kind}TokenizerFast")
    given: dict[str, Any] = {"model_max_length": limit}
    if int(transformers.__version__.partition(".")[0]) >= 5:
        return made(vocab=vocabulary, **({"merges": merges} if merges else {}), **given)
    with TemporaryDirectory() as folder:
        words, pairs = Path(folder, "vocab"), Path(folder, "merges")
        words.write_text(json.dumps(vocabulary) if merges else "\n".join(vocabulary), encoding="utf-8")
        if merges:
            pairs.write_text("\n".join(map(" ".join, merges)), encoding="utf-8")
            given["merges_file"] = str(pairs)
        return made(vocab_file=str(words), **given)
