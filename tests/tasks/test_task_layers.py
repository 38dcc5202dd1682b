"""Layers from a table, from a running encoder and from one in training are the same layers."""

import numpy as np
import pytest
import torch
from small_tasks import tiny_elmo

from elmokit.encoders import Static
from elmokit.encoders.static.table import WordTable
from elmokit.errors import InputError
from elmokit.layers import LayerStack
from elmokit.tasks.layers import CachedLayers, LiveLayers, TunedLayers
from elmokit.text import Sentence

CPU = torch.device("cpu")
SENTENCES = [Sentence.of(s.split()) for s in ("the cat sat", "a", "", "the cat sat", "on the mat .")]


def same(a: LayerStack, b: LayerStack, *, atol: float = 0.0) -> None:
    assert torch.equal(a.mask, b.mask)
    assert (a.names, a.bounded) == (b.names, b.bounded)
    torch.testing.assert_close(a.values, b.values, atol=atol, rtol=0)


def test_three_sources_give_the_same() -> None:
    elmo = tiny_elmo()
    cached = CachedLayers.of(elmo, SENTENCES)
    assert len(cached.table) == 4  # distinct sentences
    for picked in ([0, 1, 2], [4, 3], [2], [2, 2]):
        sentences = [SENTENCES[k] for k in picked]
        stack = cached.stack(sentences, CPU)
        assert stack.values.shape == (3, len(picked), max(map(len, sentences)) or 1, elmo.width)
        same(stack, LiveLayers(elmo).stack(sentences, CPU), atol=1e-3)
        tuned = TunedLayers(elmo).stack(sentences, CPU)
        same(LiveLayers(elmo, rounded=False).stack(sentences, CPU), tuned, atol=1e-5)
        assert tuned.values.requires_grad == any(map(len, sentences))


def test_rows_gathered_on_a_device_are_those_of_the_table() -> None:
    cached = CachedLayers.of(tiny_elmo(), SENTENCES)
    sentences = [SENTENCES[k] for k in (4, 2, 0)]
    expected = cached.stack(sentences, CPU)
    cached._moved = torch.from_numpy(np.array(cached.table.values))  # as on a GPU
    same(cached._gathered([cached.places[s.tokens] for s in sentences], CPU), expected)


def test_unknown_sentences_and_other_encoders_are_refused() -> None:
    cached = CachedLayers.of(tiny_elmo(), SENTENCES)
    with pytest.raises(InputError, match="no layers were computed for 'a dog'"):
        cached.stack([Sentence.of(["a", "dog"])], CPU)
    static = Static(WordTable(["a"], np.ones((1, 2), dtype=np.float32)), device="cpu")
    with pytest.raises(InputError, match="only an ELMo can be fine-tuned"):
        TunedLayers(static)
