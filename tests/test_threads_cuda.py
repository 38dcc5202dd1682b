"""The same on a GPU: eight threads at once get what one thread gets, in one stream or each in its own."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit import ElmoEmbedding, Features, Joined, Part, Static, Transformer
from elmokit.compat.allennlp import ElmoEmbedder
from elmokit.encoders import Elmo, WordTable
from elmokit.weights import save_pretrained
from many_threads import MODEL, WORDS, check, jobs, language_model_calls, save_tagger, tagger_calls

KINDS = (
    *("elmo", "two types", "forgetful", "several", "joined", "layer", "embedder"),
    *("language model", "tagger", "bert", "gpt"),
)


def on_device(kind: str, folder: Path, device: str) -> Callable[[Any], Any]:
    """An object on this device, and the call under test."""
    if kind == "language model":
        return language_model_calls(device)
    if kind == "tagger":
        return tagger_calls(folder, device)
    if kind in ("bert", "gpt"):
        model = getattr(pytest.importorskip("transformer_models"), kind)()
        encoder = Transformer(model.network, model.tokenizer, device=device)
        return lambda batch: encoder.encode_layers(batch)
    if kind == "embedder":
        embedder = ElmoEmbedder(folder, stateful=False, cuda_device=0 if device == "cuda" else -1)
        return lambda batch: embedder.embed_batch(batch)
    elmo = Elmo(MODEL.pretrained, device=device, cache_words=40)
    if kind == "elmo":
        return lambda batch: elmo.encode_layers(batch)
    if kind == "two types":  # the second is built by whichever thread comes first
        return lambda batch: (elmo.encode_tokens(batch), elmo.encode(batch, dtype="float64"))
    if kind == "forgetful":

        def call(batch: list[list[str]]) -> Any:
            if len(batch) == 1:
                elmo.forget_words()
            return elmo.encode_layers(batch)

        return call
    if kind == "several":  # graphs of several models are recorded at the same time
        others = [elmo, *(Elmo(MODEL.pretrained, device=device, cache_words=40) for _ in range(3))]
        return lambda batch: others[sum(map(len, batch)) % 4].encode_layers(batch)
    if kind == "layer":
        embedding = ElmoEmbedding(MODEL.pretrained).eval().to(device)
        return lambda batch: embedding(batch).vectors.detach().cpu()
    assert kind == "joined"
    table = WordTable(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float32))
    parts = [Static(table, device=device), Part(elmo)]
    joined, features = Joined(parts), Features(parts).eval().to(device)
    return lambda batch: (joined.encode_tokens(batch), features(batch).vectors.detach().cpu())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_on_cuda(kind: str, streams: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are recorded and replayed while others do the same, in one stream or each in its own."""
    monkeypatch.setattr("elmokit.lm.model.CACHE_WORDS", 20)
    monkeypatch.setattr("elmokit.compat.allennlp.embedder.CACHE_WORDS", 40)
    if kind == "tagger":
        save_tagger(tmp_path)
    elif kind == "embedder":
        save_pretrained(MODEL.pretrained, tmp_path)

    def new() -> Callable[[Any], Any]:
        call, own = on_device(kind, tmp_path, "cuda"), threading.local()

        def in_own_stream(batch: list[list[str]]) -> Any:
            own.stream = getattr(own, "stream", None) or torch.cuda.Stream()
            with torch.cuda.stream(own.stream):
                return call(batch)

        return in_own_stream if streams else call

    # Small ones, for which graphs are recorded, and larger ones.
    small = [batch for batch in jobs(60) if len(batch) <= 2 or not any(len(tokens) > 4 for tokens in batch)]
    number = {"elmo": 40, "several": 24, "language model": 5}.get(kind, 12)
    check(new, [*small[:number], *jobs(3)], near=1e-4)
