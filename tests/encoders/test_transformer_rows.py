"""Texts end to end in one row, against the same texts padded; and how rows are cut into runs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import transformer_models
from elmokit.encoders.transformer._rows import LongRow, cut_long_rows, cut_padded_rows, padded
from elmokit.encoders.transformer.encoder import Transformer

transformers = transformer_models.transformers
SHAPE = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 40, "initializer_range": 0.5,
}  # fmt: skip
SAMPLES = [[7, 8], [7, 8, 9], [9, 8, 7], [5] * 9]
rows = st.lists(st.lists(st.integers(5, 39), min_size=1, max_size=30), min_size=1, max_size=12)
lengths = st.lists(st.integers(1, 60), max_size=60).map(sorted)


def network(kind: str, **more: object) -> torch.nn.Module:
    torch.manual_seed(3)
    made = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(kind, **SHAPE, **more))
    return made.eval()


RECENT = int(transformers.__version__.partition(".")[0]) >= 5
NETWORKS = {kind: network(kind) for kind in ("bert", "roberta", "xlm-roberta", *(["electra"] if RECENT else []))}


@pytest.mark.parametrize("kind", NETWORKS)
@given(texts=rows)
def test_end_to_end_is_as_padded(kind: str, texts: list[list[int]]) -> None:
    long_row = LongRow.of(NETWORKS[kind], SAMPLES, filler=1)
    assert long_row is not None
    with torch.no_grad():
        want, got = padded(NETWORKS[kind], texts, filler=1), long_row(texts)
    for layer, other in zip(want.layers, got.layers, strict=True):
        for text, there, here in zip(texts, want.begins, got.begins, strict=True):
            np.testing.assert_allclose(other[here : here + len(text)], layer[there : there + len(text)], atol=1e-4)


@pytest.mark.parametrize(
    "other",
    [
        network("bert", is_decoder=True),  # a word sees the left only
        network("distilbert", dim=16, n_layers=2, n_heads=2, hidden_dim=24),  # not on the list
        network("bert", attn_implementation="eager"),
        network("bert").to(torch.bfloat16),
    ],
    ids=["decoder", "distilbert", "eager", "bfloat16"],
)
def test_others_are_padded(other: torch.nn.Module) -> None:
    assert LongRow.of(other, SAMPLES, filler=1) is None


def test_a_bert_runs_end_to_end_and_a_gpt_does_not() -> None:
    bert, gpt = transformer_models.bert(), transformer_models.gpt()
    assert Transformer(bert.network, bert.tokenizer, device="cpu").placed().long_row is not None  # type: ignore[attr-defined]
    assert Transformer(gpt.network, gpt.tokenizer, device="cpu").placed().long_row is None  # type: ignore[attr-defined]


@given(lengths, st.integers(1, 200))
def test_long_rows_take_all_and_not_too_much(sizes: list[int], most: int) -> None:
    cut = list(cut_long_rows(sizes, most))
    assert [k for begin, end in cut for k in range(begin, end)] == list(range(len(sizes)))
    for begin, end in cut:
        assert end > begin
        assert sum(sizes[begin:end]) <= most + sizes[end - 1]


@given(lengths, st.integers(1, 400), st.integers(0, 100))
def test_padded_rows_cost_no_more_than_a_greedy_cut(sizes: list[int], most: int, once: int) -> None:
    cut = cut_padded_rows(sizes, most, once)
    assert [k for begin, end in cut for k in range(begin, end)] == list(range(len(sizes)))
    assert all(end - begin == 1 or (end - begin) * sizes[end - 1] <= most for begin, end in cut)
    apart = [(k, k + 1) for k in range(len(sizes))]
    cost = [sum((end - begin) * sizes[end - 1] + once for begin, end in some) for some in (cut, apart)]
    assert cost[0] <= cost[1]
